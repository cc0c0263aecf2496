/* Errors and aligned memory. */
#include "base.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "platform.h"

int32_t tc_error_set(tc_error *error, int32_t code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  error->code = code;
  vsnprintf(error->message, sizeof(error->message), format, args);
  va_end(args);
  return code;
}

/* Large pages pay from this size on: first touching small ones takes as long as packing weights into them. */
enum { LARGE_PAGE = 2 << 20, WORTH_IT = 8 << 20, SLAB = 32 << 20 };

/* The word before all memory: the address of the block that it lies in, or that of its slab, which is odd. */
typedef uintptr_t prefix;
enum { OF_SLAB = 1 };

struct tc_slab {
  char *memory;
  int64_t used;
  atomic_llong holders; /* the pieces, and the shelf */
};

static void *allocate(int64_t bytes, int64_t worth_it) {
  const size_t alignment = bytes >= worth_it ? LARGE_PAGE : TC_ALIGNMENT;
  const size_t size = (size_t)tc_round_up(tc_max(bytes, 1), (int64_t)alignment);
  /* The system hands out zeros, so that calloc touches no page of a large block. */
  char *block = calloc(1, size + alignment + sizeof(prefix));
  if (!block) {
    return NULL;
  }
  char *memory = block + sizeof(prefix);
  memory += alignment - (uintptr_t)memory % alignment;
  memcpy(memory - sizeof(prefix), &(prefix){(uintptr_t)block}, sizeof(prefix));
  if (alignment == LARGE_PAGE) {
    tc_prefer_large_pages(memory, size);
  }
  return memory;
}

void *tc_allocate(int64_t bytes) { return allocate(bytes, WORTH_IT); }

void *tc_allocate_arena(int64_t bytes) { return allocate(bytes, LARGE_PAGE); }

static void drop(tc_slab *slab) {
  if (atomic_fetch_sub(&slab->holders, 1) == 1) {
    tc_free(slab->memory);
    free(slab);
  }
}

void tc_free(void *memory) {
  if (memory) {
    prefix word;
    memcpy(&word, (char *)memory - sizeof(word), sizeof(word));
    if (word % 2 == OF_SLAB) {
      drop((tc_slab *)(word - OF_SLAB));
    } else {
      free((void *)word);
    }
  }
}

static tc_slab *slab_create(void) {
  tc_slab *slab = calloc(1, sizeof(*slab));
  char *memory = slab ? tc_allocate(SLAB) : NULL;
  if (!memory) {
    free(slab);
    return NULL;
  }
  slab->memory = memory;
  atomic_init(&slab->holders, 1);
  return slab;
}

void *tc_shelf_take(tc_shelf *shelf, int64_t bytes) {
  const int64_t room = TC_ALIGNMENT + tc_round_up(tc_max(bytes, 1), TC_ALIGNMENT); /* the word comes first */
  if (bytes >= WORTH_IT) {
    return tc_allocate(bytes);
  }
  shelf->bytes += room;
  if (shelf->bytes < WORTH_IT) {
    return tc_allocate(bytes);
  }
  if (!shelf->slab || shelf->slab->used + room > SLAB) {
    tc_shelf_close(shelf);
    shelf->slab = slab_create();
  }
  tc_slab *slab = shelf->slab;
  if (!slab) {
    return NULL;
  }
  char *memory = slab->memory + slab->used + TC_ALIGNMENT;
  slab->used += room;
  atomic_fetch_add(&slab->holders, 1);
  memcpy(memory - sizeof(prefix), &(prefix){(uintptr_t)slab + OF_SLAB}, sizeof(prefix));
  return memory;
}

void tc_shelf_close(tc_shelf *shelf) {
  if (shelf->slab) {
    drop(shelf->slab);
  }
  shelf->slab = NULL;
}

bool tc_bytes_of(int32_t rank, const int64_t *dims, int32_t element, int64_t *bytes) {
  bool empty = false, sound = true;
  for (int32_t d = 0; sound && d < rank; d++) {
    sound = dims[d] >= 0 && dims[d] <= TC_MAX_BYTES;
    empty = empty || dims[d] == 0;
  }
  *bytes = element;
  for (int32_t d = 0; sound && !empty && d < rank; d++) {
    sound = !__builtin_mul_overflow(*bytes, dims[d], bytes) && *bytes <= TC_MAX_BYTES;
  }
  *bytes = empty ? 0 : *bytes;
  return sound;
}

bool tc_reserve(void **items, int64_t count, int64_t *capacity, size_t item_size) {
  if (count < *capacity) {
    return true;
  }
  const int64_t larger = *capacity ? *capacity * 2 : 16;
  void *moved = realloc(*items, (size_t)larger * item_size);
  if (!moved) {
    return false;
  }
  *items = moved;
  *capacity = larger;
  return true;
}
