/* tinycomp: the C runtime's public interface.
 *
 * A program is a flat list of kernel calls. It is built once (constants, instructions, finish), which validates every
 * parameter and packs the weights for the chosen instruction set. A context holds the memory of one run at a time; a
 * program is immutable after tc_program_finish and may be run from many threads, each with its own context.
 *
 * Every function that can fail returns a tc_status and fills the caller's tc_error; nothing aborts. There is no global
 * state. Sizes are in bytes, shapes and strides in elements, tensors are row-major and images NHWC unless stated.
 */
#ifndef TINYCOMP_H
#define TINYCOMP_H

#include <stddef.h>
#include <stdint.h>

#include "tinycomp_error.h"

/* What the library exports: the functions that follow, and those of tinycomp_run.h. */
#ifndef _WIN32
#pragma GCC visibility push(default)
#endif

/* cdef-begin: the text up to cdef-end is also read by the Python binding; no preprocessor lines in between. */

typedef struct tc_program tc_program;
typedef struct tc_context tc_context;
typedef struct tc_pool tc_pool;
typedef struct tc_weights tc_weights;

/* The space of an operand: absent, a buffer of the caller, a constant, or the context's arena. */
enum tc_space { TC_NONE = 0, TC_INPUT = 1, TC_OUTPUT = 2, TC_CONSTANT = 3, TC_ARENA = 4 };

typedef struct tc_operand {
  int32_t space;  /* an enum tc_space */
  int32_t index;  /* number of the input, output or constant; 0 for the arena */
  int64_t offset; /* in bytes from the start of that buffer */
} tc_operand;

/* ---- machine ---- */

/* Name of the i-th instruction set that this build has and this machine runs, best last; NULL past the end. */
const char *tc_isa_name(int32_t index);
/* Name of the i-th processor feature that matters to tinycomp and that this machine has; NULL past the end. */
const char *tc_cpu_feature(int32_t index);
/* Name of the instruction set that programs use by default: the environment's TINYCOMP_ISA, or else the best one. NULL
 * if the environment asks for one that this machine does not run. */
const char *tc_isa_default(void);

/* Whether weights can be packed here for an instruction set, whether or not its kernels run here. */
int32_t tc_isa_packs(const char *isa);

/* A number that tells versions of this interface apart, kernels and their parameters included. */
int64_t tc_fingerprint(void);

/* The floats of a vector, the columns of a panel in a product of matrices, and whether one instruction of this machine
 * multiplies vectors of pairs of bfloat16. */
typedef struct tc_isa_shape {
  int64_t lanes, panel, pairs;
} tc_isa_shape;

/* False if there is no such instruction set here. */
int32_t tc_isa_describe(const char *isa, tc_isa_shape *shape);
/* Bytes of a cache of level 1 (data), 2 or 3 as the system states them, or a common size where it does not. */
int64_t tc_cache_bytes(int32_t level);
/* Floating-point operations per second of the calling thread's core with an instruction set (named as for
 * tc_program_create): the most of many short measurements of independent multiply-adds, some milliseconds together. */
int32_t tc_peak_flops(const char *isa, double *flops_per_second, tc_error *error);
/* The same for operations on 8-bit numbers: exact products, added up in 32 bits. */
int32_t tc_peak_int8(const char *isa, double *operations_per_second, tc_error *error);
/* Bytes per second that this many threads read together from this much memory, over and over: the best of several
 * passes. */
int32_t tc_peak_read(const char *isa, int32_t threads, int64_t bytes, double *bytes_per_second, tc_error *error);

/* ---- kernels ---- */

int32_t tc_kernel_count(void);
const char *tc_kernel_name(int32_t kernel);
/* One letter per operand: o written, i read, w constant, p constant and packed, so that a run does not read it; upper
 * case when it may be absent. */
const char *tc_kernel_signature(int32_t kernel);

/* ---- programs ---- */

/* A program is described by records, whose kinds src/records.def lists: numbers of 64 bits, least significant byte
 * first. A record is its kind and its fields. A text is the count of its bytes, these and a zero, filled up to a
 * multiple of eight; bytes likewise without the zero; an operand is three numbers, an extent two; a list is its length
 * and its items. */
int32_t tc_record_count(void);
/* Name of a kind and its fields, as in "word constant:i word:n value:n"; NULL past the end. */
const char *tc_record_fields(int32_t kind);

/* An array that a program reads, which is not copied and must outlive the program; it may be unaligned only if all
 * kernels pack it. */
typedef struct tc_array {
  const void *data;
  int64_t bytes;
  int32_t mapped; /* whether it is in a file mapped for reading only; its pages are given back once it is packed */
} tc_array;

/* How a program is made for a machine. */
typedef struct tc_making {
  const char *isa;     /* a name, or NULL for the environment's TINYCOMP_ISA, or else for the best one. If this machine
                        * can only pack weights for the instruction set, states can be read, but nothing runs. */
  int64_t cache;       /* bytes of the second-level cache that kernels assume; 0 for that of this machine */
  tc_weights *weights; /* packed weights shared by programs that use the same constants, or NULL */
} tc_making;

/* Makes a program of its records, from PROGRAM to END, behind those of the bodies of its control flow. Nothing in them
 * is trusted: counts are held against the bytes that are left, indices against what they name, every parameter is
 * checked, and weights are packed for the instruction set. */
int32_t tc_program_read(const void *records, int64_t bytes, const tc_array *constants, int64_t count,
                        const tc_making *making, tc_program **program, tc_error *error);
void tc_program_destroy(tc_program *program);
/* A body of an instruction that is control flow, which belongs to the program; NULL if there is none. */
const tc_program *tc_program_body(const tc_program *program, int64_t instruction, int32_t body);

enum tc_limits { TC_MAX_SYMBOLS = 4096 };

/* What a formula computes from earlier values. A CONSTANT is its first operand, DIVIDE rounds down, and IF_ZERO is its
 * second operand if the first is 0, else the third. The first operand of a CONDITION must be 0 in every run; its second
 * one is the number in the message. */
enum tc_formula_operation {
  TC_FORMULA_CONSTANT = 0,
  TC_FORMULA_ADD = 1,
  TC_FORMULA_MULTIPLY = 2,
  TC_FORMULA_DIVIDE = 3,
  TC_FORMULA_MIN = 4,
  TC_FORMULA_MAX = 5,
  TC_FORMULA_IF_ZERO = 6,
  TC_FORMULA_CONDITION = 7
};

enum tc_control_kind { TC_CONTROL_IF = 0, TC_CONTROL_LOOP = 1 };

enum tc_ranks { TC_MAX_RANK = 8 };

/* Whether a run may continue if its loops then hold this many bytes. */
typedef int32_t (*tc_permits)(void *owner, int64_t bytes);

/* Lets control flow ask before it takes more memory, and loops ask from time to time; a run that may not continue ends
 * with TC_LIMIT. */
void tc_context_supervise(tc_context *context, tc_permits permits, void *owner);

/* Ends runs with TC_LIMIT that last longer than this many seconds from now, before the next instruction or piece of
 * one; 0 for no limit. */
void tc_context_end_after(tc_context *context, double seconds);

const char *tc_program_isa(const tc_program *program);
/* Bytes that the program touches of its i-th input or output. */
int64_t tc_program_input_bytes(const tc_program *program, int32_t index);
int64_t tc_program_output_bytes(const tc_program *program, int32_t index);
/* The plan of a kernel call in a finished static program, with which the kernel can be called without the program. */
typedef struct tc_step_plan {
  int64_t units, scratch_bytes, state_bytes;
  const void *state; /* belongs to the program, aligned to 64 bytes; NULL if there is none */
  int32_t fixed;     /* whether the state depends on constants alone, and is valid for other sizes as well */
} tc_step_plan;
/* False if there is no such instruction, or if it is control flow. */
int32_t tc_program_plan(const tc_program *program, int64_t instruction, tc_step_plan *plan);
/* The same for the current sizes of a context of a symbolic program. */
int32_t tc_context_plan(const tc_context *context, int64_t instruction, tc_step_plan *plan);
/* Numbers in a state: from an offset on, `count` numbers of `size` bytes each, repeated `times` times, `step` bytes
 * apart. */
typedef struct tc_numbers {
  int64_t offset, count, size, times, step;
} tc_numbers;
/* The i-th numbers of several bytes in the state of such an instruction; false if there are no more. All other parts of
 * the state are bytes. */
int32_t tc_program_numbers(const tc_program *program, int64_t instruction, int32_t i, tc_numbers *numbers);
/* The i-th range of bytes that a run clears first, in an output or in the arena (-1); false if there are no more. */
int32_t tc_program_cleared(const tc_program *program, int64_t i, int32_t *buffer, int64_t *begin, int64_t *end);
/* The same for the current sizes of a context of a symbolic program. */
int32_t tc_context_cleared(const tc_context *context, int64_t i, int32_t *buffer, int64_t *begin, int64_t *end);
/* Bytes of packed weights and other state that the program owns alone. */
int64_t tc_program_state_bytes(const tc_program *program);
/* Bytes of a context of a finished program: arena, scratch of all threads, pointers. */
int64_t tc_program_context_bytes(const tc_program *program, int32_t threads);

/* A store of packed weights for one model; safe to use from many threads. Programs may outlive the caller's reference.
 */
int32_t tc_weights_create(tc_weights **weights, tc_error *error);
void tc_weights_destroy(tc_weights *weights);
/* Bytes that are shared now. */
int64_t tc_weights_bytes(tc_weights *weights);

/* The work of one kernel call by its definition; an exponential or a comparison counts as one operation. */
typedef struct tc_work {
  double flops;              /* operations on floating-point numbers */
  double integer_operations; /* operations on all other numbers */
  double done;               /* operations of the algorithm in use, which may be fewer than the sum of both */
  double read, written;      /* bytes of the elements that must be read and written, each counted once */
  int64_t algorithm;         /* an enum tc_conv_algorithm */
} tc_work;

/* The work of the i-th instruction of a finished program; all 0 if only a run determines the number of its rows. False
 * if there is no such instruction. */
int32_t tc_program_work(const tc_program *program, int64_t instruction, tc_work *work);

/* ---- execution ---- */

/* threads: the most threads that a run with this context will use. */
int32_t tc_context_create(const tc_program *program, int32_t threads, tc_context **context, tc_error *error);
/* Prepares a context of a symbolic program for these sizes; returns at once if it is prepared already. Kernels check
 * and plan their calls again, packed weights stay. TC_INVALID if the program does not work for the sizes, TC_LIMIT if
 * arena, scratch and results need more than `most` bytes together, and more than any call before has granted; the
 * plan is kept for a call that grants them. */
int32_t tc_context_resize(tc_context *context, const int64_t *symbols, int64_t most, tc_error *error);
/* An array that a program is called with: row-major and without gaps, of the type that the program says. */
typedef struct tc_argument {
  const void *data;
  const int64_t *dims;
  int64_t rank;
} tc_argument;

/* Prepares a context of a program that was read for one argument per input: reads the sizes off their dimensions and
 * elements, resizes the context, and holds all dimensions against those of the program. TC_INVALID if they do not fit;
 * otherwise as tc_context_resize. */
int32_t tc_context_fit(tc_context *context, const tc_argument *arguments, int64_t most, tc_error *error);
/* The sizes that the last tc_context_fit has read, by symbol, whether it succeeded or not. */
const int64_t *tc_context_symbols(const tc_context *context);
/* The number of dimensions of an output, and these; -1 for one that only a run measures. */
int32_t tc_context_result(const tc_context *context, int32_t output, const int64_t **dims);
/* Bytes of arena, scratch and results for the sizes of the last tc_context_resize, whether it succeeded or not. */
int64_t tc_context_needed_bytes(const tc_context *context);
/* How many of the first bytes of an output a run certainly writes at these sizes. The owner of the output's memory must
 * clear the other bytes, unless old contents may be visible. */
int64_t tc_context_written_bytes(const tc_context *context, int32_t output);
/* As tc_program_work, for the sizes that the context is prepared for. */
int32_t tc_context_work(const tc_context *context, int64_t instruction, tc_work *work);
void tc_context_destroy(tc_context *context);

/* An output whose size the last run has determined: its data, which are valid until the next run, its dimensions and
 * their number, which is -1 for any other output. */
typedef struct tc_grown {
  const void *data;
  int64_t bytes;
  int32_t rank;
  int64_t dims[8]; /* TC_MAX_RANK */
} tc_grown;

int32_t tc_context_grown(const tc_context *context, int32_t output, tc_grown *grown);
/* threads includes the caller: a pool of 1 starts no thread. */
int32_t tc_pool_create(int32_t threads, tc_pool **pool, tc_error *error);
void tc_pool_destroy(tc_pool *pool);
int32_t tc_pool_threads(const tc_pool *pool);
/* pool may be NULL. If another thread is using the pool, the run proceeds on the calling thread, with the same bits. */
int32_t tc_run(const tc_program *program, tc_context *context, tc_pool *pool, void *const *inputs, void *const *outputs,
               tc_error *error);
/* The same for a caller that asks nobody: with TC_LIMIT it ends where control flow would take more memory than the
 * context holds. It does not begin if that is to be expected: unless the run before was for the same sizes, and took
 * none. */
int32_t tc_run_in_room(const tc_program *program, tc_context *context, tc_pool *pool, void *const *inputs,
                       void *const *outputs, tc_error *error);
/* seconds: one figure per instruction, overwritten. */
int32_t tc_run_profiled(const tc_program *program, tc_context *context, tc_pool *pool, void *const *inputs,
                        void *const *outputs, double *seconds, tc_error *error);

/* cdef-end */

#ifndef _WIN32
#pragma GCC visibility pop
#endif

#include "tinycomp_kernels.h"

#endif
