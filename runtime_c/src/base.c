/* Errors and aligned memory. */
#include "base.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int32_t tc_error_set(tc_error *error, int32_t code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  error->code = code;
  vsnprintf(error->message, sizeof(error->message), format, args);
  va_end(args);
  return code;
}

void *tc_allocate(int64_t bytes) {
  /* Large pages pay from this size on: first touching small ones takes as long as packing weights into them. */
  enum { LARGE_PAGE = 2 << 20, WORTH_IT = 8 << 20 };
  const size_t alignment = bytes >= WORTH_IT ? LARGE_PAGE : TC_ALIGNMENT;
  const size_t size = (size_t)tc_round_up(tc_max(bytes, 1), (int64_t)alignment);
  /* The system hands out zeros, so that calloc touches no page of a large block; its address goes before the memory. */
  char *block = calloc(1, size + alignment + sizeof(void *));
  if (!block) {
    return NULL;
  }
  char *memory = block + sizeof(void *);
  memory += alignment - (uintptr_t)memory % alignment;
  memcpy(memory - sizeof(void *), &block, sizeof(void *));
#ifdef MADV_HUGEPAGE
  if (alignment == LARGE_PAGE) {
    (void)madvise(memory, size, MADV_HUGEPAGE); /* a wish; without it everything works as well */
  }
#endif
  return memory;
}

void tc_free(void *memory) {
  if (memory) {
    void *block;
    memcpy(&block, (char *)memory - sizeof(void *), sizeof(void *));
    free(block);
  }
}
