/* The container of saved modules: a zip file without compression, of which this finds and checks members. */
#ifndef TINYCOMP_ARCHIVE_H
#define TINYCOMP_ARCHIVE_H

#include "base.h"

typedef struct tc_member {
  const unsigned char *data;
  int64_t bytes;
} tc_member;

/* Finds a member by name; TC_INVALID if the file is no such archive, has no such member, or its checksum is wrong. */
int32_t tc_archive_find(const unsigned char *file, int64_t bytes, const char *name, tc_member *member, tc_error *error);

#endif
