/* The inside of a context. */
#ifndef TINYCOMP_CONTEXT_H
#define TINYCOMP_CONTEXT_H

#include "initialised.h"

/* The rest of one thread's part of a step. */
typedef struct tc_portion {
  _Alignas(64) _Atomic int64_t next; /* unit */
  int64_t end;
} tc_portion;

/* The memory held by the control flow of a context and its inner ones, and the callback that permits more. */
typedef struct tc_supervision {
  tc_permits permits;
  void *owner;
  int64_t bytes;
  double asked;            /* when, in seconds */
  _Atomic double deadline; /* likewise, or 0 for none; another thread may bring it forward */
  bool is_closed;          /* whether this run may take no more, and asks for nothing */
  bool has_taken;          /* whether this run took more */
} tc_supervision;

/* Memory that grows from trip to trip. */
typedef struct tc_buffer {
  char *data;
  int64_t room;
} tc_buffer;

/* A context's part of an instruction with bodies. */
typedef struct tc_control_state {
  int body_count;
  tc_context *contexts[2];
  int64_t *symbols[2]; /* of the bodies */
  void **inputs, **outputs;
  int64_t *bytes; /* of the inputs at hand */
  int32_t buffer_count;
  tc_buffer *buffers; /* two for every carried value, then one for every other result */
  int64_t *row_dims;  /* of the other results, TC_MAX_RANK each */
  int64_t *row_bytes;
} tc_control_state;

struct tc_context {
  const tc_program *program;
  char *arena;
  char *scratch;
  int64_t arena_room, scratch_room; /* bytes of both */
  int64_t granted;                  /* the most bytes of arena, scratch and results that it may have */
  int64_t scratch_stride;
  tc_portion *portions; /* one per thread */
  int32_t threads;
  void **pointers;             /* one per operand of the program */
  tc_patch *patches;           /* the pointers that change with every run */
  int64_t *dims;               /* of all inputs and outputs of a program that was read, at these sizes */
  int64_t *symbols;            /* sizes that arguments have shown */
  tc_instance sized;           /* of a symbolic program: the instance for the next run */
  int64_t *values;             /* symbols and formulas for the next sizes */
  bool is_planned;             /* whether `sized` is complete */
  bool is_sized;               /* whether there is memory for it, too */
  bool has_dims;               /* whether `dims` are those of these sizes */
  bool has_unplanned;          /* whether steps of `sized` wait for sizes that a run determines */
  int32_t pending;             /* stage of sizes that steps have determined, of which `sized` does not know yet; or 0 */
  bool is_set_up;              /* whether the setup steps have run for these sizes */
  bool is_steady;              /* whether the last run was for these sizes, and took no more memory */
  tc_control_state **controls; /* one per instruction with bodies */
  int64_t control_count;
  tc_supervision supervision;
  tc_supervision *supervisor; /* of this context, or of the one around it */
  tc_grown *grown;            /* one per output of a program with such instructions */
};

/* The instance of the program for the context's next run. */
static inline const tc_instance *tc_instance_of(const tc_context *context) {
  return tc_program_is_symbolic(context->program) ? &context->sized : &context->program->own;
}

/* The steps of a run: those of the program, or those for the context's sizes. */
static inline const tc_step *tc_steps_of(const tc_context *context) { return tc_instance_of(context)->steps; }

/* The most bytes that a program touches of a buffer at the sizes of a context. */
int64_t tc_touched_bytes(const tc_context *context, bool is_output, int32_t index);

/* Notes the dimensions of inputs and outputs at the sizes of a context; the program stays within them. */
int32_t tc_context_note_dims(tc_context *context, tc_error *error);

/* Sets the pointers into the caller's buffers, after checking their alignment. */
int32_t tc_context_resolve(tc_context *context, void *const *inputs, void *const *outputs, tc_error *error);

/* Notes the size that a step has determined. */
int32_t tc_context_take_size(tc_context *context, int64_t found_by, tc_error *error);

/* Makes the steps from one on ready for the sizes that those before it have determined. */
int32_t tc_context_take_over(tc_context *context, int64_t first, void *const *inputs, void *const *outputs,
                             tc_error *error);

/* Clears what a run does not write for certain of an output of so many bytes; its first bytes that are for certain are
 * left alone. */
void tc_clear_output(const tc_context *context, int32_t output, void *data, int64_t bytes);

#endif
