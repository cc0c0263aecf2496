/* Where the new rows of a sequence lie in its cache, and how many keys it then has. */
#ifndef TINYCOMP_KERNELS_ATTENTION_CACHE_SPAN_H
#define TINYCOMP_KERNELS_ATTENTION_CACHE_SPAN_H

#include "vocabulary.h"

typedef struct cache_span {
  int64_t first; /* position of the first new row, or of the first query */
  int64_t total; /* keys that are valid */
} cache_span;

/* The span of a sequence by the lengths that a run has, of 4 or 8 bytes, to which `more` is added; a sequence whose
 * new rows are all the tokens of the longest one begins at 0. A negative length gives a total of -1. */
static inline cache_span cache_span_at(const void *lengths, int64_t bytes, int64_t more, const int32_t *longest,
                                       int64_t rows, int64_t batch) {
  const int64_t given = bytes == 4 ? ((const int32_t *)lengths)[batch] : ((const int64_t *)lengths)[batch];
  const int64_t total = given < -more ? -1 : tc_min(given, TC_MAX_BYTES - more) + more;
  return (cache_span){longest && *longest == rows ? 0 : total - rows, total};
}

#endif
