/* The interface between the executor and the kernel bodies. */
#ifndef TINYCOMP_KERNEL_H
#define TINYCOMP_KERNEL_H

#include <stdbool.h>

#include "base.h"

/* The failure of a run, which any thread may set. With TC_STANDALONE, kernels are called by one thread, without the
 * rest of the runtime. */
#ifdef TC_STANDALONE
typedef const char *tc_failure;
#define tc_memmove memcpy /* calls are known, and none copies within itself */
#else
#include <stdatomic.h>
typedef _Atomic(const char *) tc_failure;
#define tc_memmove memmove
#endif

enum { TC_MAX_OPERANDS = 16, TC_MAX_SHARED = 12, TC_MAX_NUMBERS = 10 };

/* The bytes of an operand that a call reads, or certainly writes, from the operand's offset on: rows that are `stride`
 * bytes apart. If there is no such pattern, `rows` is -1: the call may read all of the extent, and may write none of
 * it.
 */
typedef struct tc_reach {
  int64_t rows, stride, columns, extent; /* in bytes except for the rows; the extent is from first to last */
  int32_t counter;                       /* operand that holds the number of valid elements of this one, or 0 */
  int64_t counted_bytes;                 /* bytes of each such element, from the first byte on; 0 if every segment has
                                            its own count, so that only a reader of the counts knows what is written */
} tc_reach;

/* One kernel call while its program is being finished. A kernel's prepare function reads the first part and fills the
 * second through the functions below. The first failure sticks; whatever a prepare function does after it is ignored.
 */
typedef struct tc_prepare {
  const void *params;
  const tc_operand *operands;
  int64_t l2_bytes;                        /* of the second-level cache */
  const void *constants[TC_MAX_OPERANDS];  /* data of operands in the constant space, otherwise NULL */
  int64_t constant_bytes[TC_MAX_OPERANDS]; /* how much of it there is */

  int64_t extents[TC_MAX_OPERANDS];    /* bytes touched, from the operand's offset on; 2^48 + 1 until stated */
  int32_t alignments[TC_MAX_OPERANDS]; /* element size in bytes */
  tc_reach reaches[TC_MAX_OPERANDS];
  int64_t units;                 /* independent units of work */
  double cost;                   /* of the whole call, in floating-point operations or bytes, roughly */
  tc_work work;                  /* all but the bytes, which are those in `moved` */
  double moved[TC_MAX_OPERANDS]; /* bytes of each operand that must be read or written, each counted once */
  int64_t scratch_bytes;         /* per thread */
  int64_t state_bytes;           /* memory of the program for packed weights and derived figures */
  int64_t shared[TC_MAX_SHARED]; /* figures that the state depends on, besides constants, see tc_share */
  bool shareable;
  tc_numbers numbers[TC_MAX_NUMBERS]; /* in the state, see tc_state_numbers */
  int32_t number_count;
  tc_error *error;
} tc_prepare;

/* One kernel call while it runs. */
typedef struct tc_call {
  const void *params;
  void *const *operands; /* NULL where absent */
  const void *state;
  void *scratch; /* this thread's own */
  int64_t l2_bytes;
  tc_failure *failure;
} tc_call;

/* Validates the call and fills the second part of its tc_prepare. Constants are not yet checked: a hook may read one
 * only within its constant_bytes, and may not trust its alignment. */
typedef void (*tc_prepare_fn)(tc_prepare *prepare);
/* Fills the zeroed state; runs once, after all that the call touches has been checked. */
typedef void (*tc_pack_fn)(const tc_prepare *prepare, void *state);
/* Computes units [begin, end). The result may not depend on how the units are split. */
typedef void (*tc_run_fn)(const tc_call *call, int64_t begin, int64_t end);

/* A kernel as one instruction set implements it. */
typedef struct tc_kernel {
  tc_prepare_fn prepare;
  tc_pack_fn pack; /* NULL for stateless kernels */
  tc_run_fn run;
} tc_kernel;

/* The properties of a kernel that are the same on every machine. */
typedef struct tc_kernel_info {
  const char *name;
  const char *signature;
  int64_t params_size;
} tc_kernel_info;

enum tc_kernel_id {
#define TC_KERNEL(name, signature, packing) TC_KERNEL_##name,
#include "../kernels/kernels.def"
#undef TC_KERNEL
  TC_KERNEL_COUNT
};

extern const tc_kernel_info tc_kernel_infos[TC_KERNEL_COUNT];

/* The role of an operand: the letter of the signature in lower case, whether or not the operand may be absent. */
static inline char tc_role(char letter) { return letter >= 'A' && letter <= 'Z' ? (char)(letter - 'A' + 'a') : letter; }

/* Fills bytes with random numbers of the system; false if it has none. */
bool tc_random_bytes(void *to, size_t bytes);

/* ---- for prepare functions ---- */

/* Standalone kernels contain these functions if sizes are known only at run time. */
#ifdef TC_SIZED
#define TC_HOOK static
#else
#define TC_HOOK
#endif

/* Refuses the call with a printf-style message. */
TC_HOOK void tc_refuse(tc_prepare *prepare, const char *format, ...) __attribute__((format(printf, 2, 3)));
TC_HOOK bool tc_refused(const tc_prepare *prepare);

/* Returns from the prepare function with a message unless the condition holds. */
#define TC_REQUIRE(prepare, condition, ...) \
  do {                                      \
    if (!(condition)) {                     \
      tc_refuse((prepare), __VA_ARGS__);    \
      return;                               \
    }                                       \
  } while (0)

/* Product of non-negative factors; refuses negative ones, and products above TC_MAX_BYTES, and then returns 0. If a
 * factor is 0, the product of the others is checked all the same, so that each factor is a valid size afterwards. */
TC_HOOK int64_t tc_product(tc_prepare *prepare, const int64_t *factors, int count);

/* The same for a few factors, inlined: every new size asks for hundreds of products. */
static inline int64_t tc_small_product(tc_prepare *prepare, const int64_t *factors, int count) {
  int64_t product = 1;
  bool doubtful = false, zero = false;
  for (int i = 0; i < count; i++) {
    const int64_t factor = factors[i] + (factors[i] == 0);
    zero |= factors[i] == 0;
    doubtful |= factor < 0 || __builtin_mul_overflow(product, factor, &product) || product > TC_MAX_BYTES;
  }
  return doubtful ? tc_product(prepare, factors, count) : zero ? 0 : product;
}
#define TC_PRODUCT(prepare, ...)                              \
  tc_small_product((prepare), (const int64_t[]){__VA_ARGS__}, \
                   (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))

/* Elements spanned by `rows` rows of `columns` elements that are `stride` apart; 0 if there are none. */
TC_HOOK int64_t tc_span(tc_prepare *prepare, int64_t rows, int64_t stride, int64_t columns);

/* States that the call touches `elements` elements of `element_size` bytes of an operand, and moves all of them; absent
 * operands are ignored. */
TC_HOOK void tc_touch(tc_prepare *prepare, int operand, int64_t elements, int element_size);

/* The same for `rows` rows of `columns` elements that are `stride` apart; the gaps between them are not moved. */
TC_HOOK void tc_touch_rows(tc_prepare *prepare, int operand, int64_t rows, int64_t stride, int64_t columns,
                           int element_size);

/* The same for matrices in two dimensions of batches; along a stride of 0, the same elements are moved once. */
TC_HOOK void tc_touch_matrices(tc_prepare *prepare, int operand, const int64_t sizes[4], const int64_t strides[4],
                               int element_size);

/* States, after tc_touch, that the call may write nothing of a result. */
static inline void tc_writes_some(tc_prepare *prepare, int operand) {
  prepare->reaches[operand] = (tc_reach){.rows = -1};
}

/* States, after tc_touch, that another operand, which is not the first one, counts the elements of `bytes` bytes that
 * are read or written; 0 bytes if it has a count for each segment. */
static inline void tc_counted(tc_prepare *prepare, int operand, int counter, int64_t bytes) {
  prepare->reaches[operand].counter = counter;
  prepare->reaches[operand].counted_bytes = bytes;
}

/* States, after tc_touch, that only this many elements must be moved. */
static inline void tc_move(tc_prepare *prepare, int operand, double elements, int64_t element_size) {
  prepare->moved[operand] = elements * (double)element_size;
}

/* Product of sizes for the work, where none is too large. */
TC_HOOK double tc_count(const int64_t *factors, int count);
#define TC_COUNT(...) \
  tc_count((const int64_t[]){__VA_ARGS__}, (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))

/* The distinct elements of an operand, whose strides are 0 along dimensions that repeat. */
TC_HOOK double tc_distinct(const int64_t *sizes, const int64_t *strides, int dimensions);

/* Adds operations on numbers of an enum tc_type to the work. */
TC_HOOK void tc_operate(tc_prepare *prepare, int64_t type, double operations);

/* States that the state depends only on constants and these figures, and never changes: programs may share it. */
TC_HOOK void tc_share(tc_prepare *prepare, const int64_t *figures, int count);
#define TC_SHARE(prepare, ...) \
  tc_share((prepare), (const int64_t[]){__VA_ARGS__}, (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))

/* States that the state holds numbers: from an offset on, `count` numbers of `size` bytes each, repeated `times` times,
 * `step` bytes apart. A processor of the other byte order has their bytes swapped. If a lane holds two numbers of 16
 * bits, these are the numbers, not the lane. */
static inline void tc_state_repeats(tc_prepare *prepare, int64_t offset, int64_t count, int64_t size, int64_t times,
                                    int64_t step) {
  prepare->numbers[prepare->number_count++] = (tc_numbers){offset, count, size, times, step};
}

/* The same, once. */
static inline void tc_state_numbers(tc_prepare *prepare, int64_t offset, int64_t count, int64_t size) {
  tc_state_repeats(prepare, offset, count, size, 1, 0);
}

/* States that the state is nothing but numbers of `size` bytes. */
static inline void tc_state_of(tc_prepare *prepare, int64_t bytes, int64_t size) {
  prepare->state_bytes = bytes;
  tc_state_numbers(prepare, 0, bytes / size, size);
}

static inline bool tc_present(const tc_prepare *prepare, int operand) {
  return prepare->operands[operand].space != TC_NONE;
}

/* Refuses an activation that does not exist or whose bounds make no sense. */
TC_HOOK void tc_check_activation(tc_prepare *prepare, int64_t activation, float a, float b);

/* ---- for run functions ---- */

/* Makes the run fail with a message of static storage; the first one is reported. */
static inline void tc_fail(const tc_call *call, const char *message) {
#ifdef TC_STANDALONE
  *call->failure = *call->failure ? *call->failure : message;
#else
  const char *none = NULL;
  atomic_compare_exchange_strong(call->failure, &none, message);
#endif
}

#endif
