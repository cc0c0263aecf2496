/* tinycomp: how the C runtime and its users say what went wrong. */
#ifndef TINYCOMP_ERROR_H
#define TINYCOMP_ERROR_H

#include <stdint.h>

/* cdef-begin: as in tinycomp.h. */

enum tc_status {
  TC_OK = 0,
  TC_INVALID = 1,
  TC_NO_MEMORY = 2,
  TC_UNSUPPORTED = 3,
  TC_SYSTEM = 4,
  TC_FAILED = 5,
  TC_LIMIT = 6,
  TC_TOO_LARGE = 7
};

typedef struct tc_error {
  int32_t code; /* an enum tc_status */
  char message[300];
} tc_error;

/* cdef-end */

#endif
