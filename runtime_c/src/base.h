/* What every part of the runtime uses: errors, aligned memory, and arithmetic on sizes. */
#ifndef TINYCOMP_BASE_H
#define TINYCOMP_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tinycomp.h"

/* How the words of the SIMD vocabularies are declared. */
#define TC_INLINE static inline __attribute__((always_inline, unused))

/* Small processors have no second-level cache to fetch into what is read soon, and few registers: pointers that do not
 * move can stay in memory where an index is added to them, which compilers are kept from changing. */
#if defined(__thumb__) || defined(__riscv)
#define TC_PREFETCH(p) ((void)(p))
#define TC_OPAQUE(index) __asm__("" : "+r"(index))
#else
#define TC_PREFETCH(p) __builtin_prefetch(p, 0, 2)
#define TC_OPAQUE(index) ((void)(index))
#endif

/* No size in a program may pass this, so that sums and small multiples of sizes cannot overflow. */
#define TC_MAX_BYTES ((int64_t)1 << 48)

/* Elements of tensors that serve as sizes are no further from 0: beyond all memory, with room for arithmetic. */
#define TC_FARTHEST ((int64_t)1 << 40)

enum { TC_ALIGNMENT = 64 };

/* Fills an error and returns its code. */
int32_t tc_error_set(tc_error *error, int32_t code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Zeroed memory aligned to TC_ALIGNMENT, to be released with tc_free; NULL if there is none. */
void *tc_allocate(int64_t bytes);

/* Bytes of elements with these dimensions; false if a size is negative or the product is beyond all memory. */
bool tc_bytes_of(int32_t rank, const int64_t *dims, int32_t element, int64_t *bytes);

/* Makes room for one more item in memory of malloc; false if there is none. */
bool tc_reserve(void **items, int64_t count, int64_t *capacity, size_t item_size);

/* The same for memory that every run goes over: in large pages from the size of one on. */
void *tc_allocate_arena(int64_t bytes);
void tc_free(void *memory);

/* Memory for many pieces that each are too small for large pages but together are not: the first ones have small pages
 * of their own, later ones lie side by side in slabs with large pages. One thread takes from a shelf; pieces may
 * outlive it, and a slab lives as long as any of its pieces. */
typedef struct tc_slab tc_slab;
typedef struct tc_shelf {
  tc_slab *slab; /* what pieces are cut from at present, or NULL */
  int64_t bytes; /* that pieces have taken so far */
} tc_shelf;

/* Likewise zeroed and aligned memory, to be released with tc_free. */
void *tc_shelf_take(tc_shelf *shelf, int64_t bytes);
/* Takes no more from a shelf. */
void tc_shelf_close(tc_shelf *shelf);

static inline int64_t tc_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t tc_max(int64_t a, int64_t b) { return a > b ? a : b; }
/* The sum of a parameter, of which nothing is known yet, and a small number that is not negative: the largest number
 * where no sum is. */
static inline int64_t tc_plus(int64_t a, int64_t b) { return a > INT64_MAX - b ? INT64_MAX : a + b; }
static inline int64_t tc_ceil_div(int64_t a, int64_t b) { return a / b + (a % b > 0); }
static inline int64_t tc_round_up(int64_t a, int64_t b) { return tc_ceil_div(a, b) * b; }

#endif
