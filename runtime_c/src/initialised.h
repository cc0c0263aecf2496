/* Every byte that a run reads has been written in the same run: what no instruction is known to have written by then is
 * cleared before it begins. So neither a kernel call that writes a part of its buffer, nor an order of calls that makes
 * no sense, shows what an earlier run or anybody else left in memory.
 *
 * Memory that a caller gives for outputs is the caller's own and not cleared; what the runtime makes for them is.
 *
 * A kernel states which bytes a call reaches: rows that are some bytes apart. Buffers are written in one piece, or in
 * columns side by side that together are as wide as the rows are apart, as by a concatenation. What is written in any
 * other way counts as not written. So does, of a result, what depends on a size that only the run finds out.
 *
 * In the arena sizes that a run finds out count at once: until then as the most that they may be, then the program is
 * gone through again. Of what a kernel counts, as much is written as it counts: n tuples for a count of n that is found
 * out as a size; of segments with a count each nothing, but for a call that reads the same segments by the same counts.
 */
#ifndef TINYCOMP_INITIALISED_H
#define TINYCOMP_INITIALISED_H

#include "program.h"

/* Finds out what has to be cleared at the sizes of an instance, all of whose steps are finished. */
int32_t tc_find_holes(const tc_program *program, tc_instance *instance, tc_error *error);

/* Clears what has to be of the arena, before a run. */
void tc_clear_arena(const tc_instance *instance, char *arena);

/* Finds out once more what has to be cleared, when a run has found out a size, and clears what is new of it. */
int32_t tc_find_more_holes(const tc_program *program, tc_instance *instance, char *arena, tc_error *error);

/* How many of the first bytes of an output a run certainly writes. */
int64_t tc_written_bytes(const tc_program *program, const tc_instance *instance, int32_t output);

#endif
