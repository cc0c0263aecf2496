/* Control flow: instructions that run other programs, their bodies. */
#ifndef TINYCOMP_CONTROL_H
#define TINYCOMP_CONTROL_H

#include "program.h"

/* A context's part of such an instruction. */
typedef struct tc_control_state tc_control_state;

tc_control_state *tc_control_state_create(const tc_control *control, int32_t threads, tc_error *error);
void tc_control_state_destroy(tc_control_state *state);

/* Frees what a program keeps of such an instruction. */
void tc_control_free(tc_control *control);

int32_t tc_control_bodies(const tc_control *control);

/* The number of its operands. */
int32_t tc_control_operands(const tc_control *control);

/* The bytes of one of them, at the sizes of an instance. */
int64_t tc_extent_at(const tc_extent *extent, const int64_t *values);

/* Runs the step, whose state it is, as a part of a run of the context. */
int32_t tc_control_run(tc_context *context, const tc_step *step, tc_pool *pool, tc_error *error);

#endif
