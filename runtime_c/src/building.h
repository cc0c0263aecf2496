/* Building a program, call by call, as its records say (reading.c): constants, sizes, instructions, finish. */
#ifndef TINYCOMP_BUILDING_H
#define TINYCOMP_BUILDING_H

#include "tinycomp.h"

#ifndef _WIN32
#pragma GCC visibility push(default) /* tests call what records cannot say */
#endif

/* cdef-begin: for tests, as in tinycomp.h. */

/* isa: a name, or NULL for the environment's TINYCOMP_ISA, or else for the best one. If this machine can only pack
 * weights for the instruction set, the program can be finished, and its states can be read. */
int32_t tc_program_create(const char *isa, int32_t inputs, int32_t outputs, tc_program **program, tc_error *error);
/* The data is not copied and must outlive the program; it may be unaligned only if all kernels pack it.
 * mapped: whether the data is in a file mapped for reading only; its pages are given back once it is packed. */
int32_t tc_program_add_constant(tc_program *program, const void *data, int64_t bytes, int32_t mapped, tc_error *error);
int32_t tc_program_append(tc_program *program, int32_t kernel, const tc_operand *operands, int32_t operand_count,
                          const void *params, int64_t params_size, tc_error *error);

/* ---- symbolic programs: their sizes are parameters of a run ---- */

/* The first call: the numbers of symbols. Those that inputs show are the values 0 to shown - 1, those that instructions
 * determine come next, and every formula adds one more value. */
int32_t tc_program_symbols(tc_program *program, int32_t shown, int32_t found, tc_error *error);
int32_t tc_program_formula(tc_program *program, int32_t operation, int64_t a, int64_t b, int64_t c, tc_error *error);
/* Then, before all instructions: the bytes of the caller's inputs and outputs, the words (int64) of constants that
 * depend on sizes, and the pieces of the arena, which arena operands name by index. A piece begins after the ends of
 * the pieces `above`; pieces that are in use together must be ordered in that way. */
int32_t tc_program_buffer_size(tc_program *program, int32_t space, int32_t index, int64_t value, tc_error *error);
int32_t tc_program_word(tc_program *program, int32_t constant, int64_t word, int64_t value, tc_error *error);
int32_t tc_program_piece(tc_program *program, int64_t value, const int64_t *above, int64_t count, tc_error *error);
/* After an instruction: its parameters (an int64 at this byte) and offsets of operands that depend on sizes. */
int32_t tc_program_parameter(tc_program *program, int64_t byte, int64_t value, tc_error *error);
int32_t tc_program_offset(tc_program *program, int32_t operand, int64_t value, tc_error *error);
/* After an instruction, and in the order of the symbols: one of its operands, an int64 that it writes to the arena, is
 * the size of this symbol, at most the value `most`; that is -1 for an element of a tensor, which may be any number.
 * Earlier steps may not depend on it, nor may the bytes of buffers and pieces, which are those for the upper bound.
 * Later steps are planned again if it changes. */
int32_t tc_program_finds(tc_program *program, int32_t operand, int64_t symbol, int64_t most, tc_error *error);
/* An output that is in the arena at the end of a run, because its bytes and dimensions, all of them values, may depend
 * on sizes that instructions determine; the caller provides no memory for it, see tc_context_grown. */
int32_t tc_program_leaves(tc_program *program, int32_t output, const tc_operand *place, int64_t bytes, int32_t rank,
                          const int64_t *dims, tc_error *error);

/* ---- control flow: instructions that run other programs, their bodies ---- */

/* A number of bytes or elements: the number of a value of a program or, if that is -1, the number itself. */
typedef struct tc_extent {
  int64_t value, number;
} tc_extent;

/* A finished program that must outlive the one whose instruction runs it. Its inputs and outputs are
 *   IF    the captured operands -> the results,
 *   LOOP  the number of the iteration (int64), the condition (bool), carried and captured operands
 *         -> whether to continue (bool), the carried values, one row for each of the other results. */
typedef struct tc_body {
  const tc_program *program;
  const tc_extent *symbols; /* the initial values of its symbols, as values of the program around it */
  const int64_t *next;      /* LOOP: the body's values that they take in the next iteration; -1 for no change */
  const tc_extent *outputs; /* the bytes of its outputs, as values of the body */
} tc_body;

/* The size of a result of a loop, if it is known only after a run. */
typedef struct tc_growth {
  int32_t rank;           /* dimensions of a carried value or of a row; or -1 for a result of known size */
  const tc_extent *dims;  /* the dimensions after an iteration, as values of the body */
  const tc_extent *first; /* the dimensions without any iteration, as values of the program around it */
} tc_growth;

/* Operands: IF the condition (bool), captured ones, results; LOOP the trip count (int64; may be absent), the condition
 * (bool; may be absent), carried ones, captured ones, results: carried values, then concatenated rows. A result of
 * unknown size is an output of the program, for which the caller provides no memory, see tc_context_grown. */
typedef struct tc_control {
  int32_t kind; /* an enum tc_control_kind */
  int32_t carried, captured, results;
  const tc_operand *operands;
  const tc_extent *bytes;   /* of every operand */
  const tc_body *bodies;    /* IF: the one for a true condition, then the other; LOOP: one */
  const tc_growth *growths; /* of every result; NULL for IF */
} tc_control;

int32_t tc_program_control(tc_program *program, const tc_control *control, tc_error *error);

/* After all instructions: how many of the first ones depend on sizes alone. They read constants and the arena, write
 * memory that no other instruction writes and no other piece of the arena overlaps, and run only for new sizes. */
int32_t tc_program_setup(tc_program *program, int64_t instructions, tc_error *error);

/* The last call before tc_program_finish: sizes for which the program is checked and its weights are packed. */
int32_t tc_program_typical(tc_program *program, const int64_t *symbols, tc_error *error);

/* weights: packed weights shared by programs that use the same constants; may be NULL.
 * If it fails, the program is as it was before: it cannot be run, and may be finished again or destroyed. */
int32_t tc_program_finish(tc_program *program, tc_weights *weights, int64_t arena_bytes, tc_error *error);
/* Before tc_program_finish: the size of the second-level cache that kernels assume, instead of that of this machine. */
void tc_program_assume_cache(tc_program *program, int64_t bytes);

/* cdef-end */

#ifndef _WIN32
#pragma GCC visibility pop
#endif

#endif
