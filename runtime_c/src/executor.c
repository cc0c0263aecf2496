/* Contexts, and running a program in one. */
#include <stdlib.h>

#include "clock.h"
#include "pool.h"
#include "program.h"

/* What is left of one thread's part of a step. */
typedef struct tc_portion {
  _Alignas(64) _Atomic int64_t next; /* unit */
  int64_t end;
} tc_portion;

struct tc_context {
  char *arena;
  char *scratch;
  int64_t scratch_stride;
  tc_portion *portions; /* one per thread */
  int32_t threads;
  void **pointers; /* one per operand of the program */
};

void tc_context_destroy(tc_context *context) {
  if (context) {
    tc_free(context->arena);
    tc_free(context->scratch);
    tc_free(context->portions);
    free(context->pointers);
    free(context);
  }
}

/* Sets the pointers that are the same in every run; packed constants have none, so that no run depends on them. */
static void resolve_fixed(const tc_program *program, tc_context *context) {
  for (int64_t s = 0; s < program->step_count; s++) {
    const tc_step *step = &program->steps[s];
    const char *roles = tc_kernel_infos[step->kernel].signature;
    for (int i = 0; i <= step->operand_count; i++) {
      const tc_operand *operand = &step->operands[i];
      void **pointer = &context->pointers[step->first_pointer + i];
      if (operand->space == TC_ARENA) {
        *pointer = context->arena + operand->offset;
      } else if (operand->space == TC_CONSTANT && tc_role(roles[i]) != 'p') {
        *pointer = (char *)(uintptr_t)program->constants[operand->index].data + operand->offset;
      }
    }
  }
}

/* A line of its own between the scratch of two threads. */
static int64_t scratch_stride(const tc_program *program) {
  return tc_round_up(program->scratch_bytes, TC_ALIGNMENT) + TC_ALIGNMENT;
}

int64_t tc_program_context_bytes(const tc_program *program, int32_t threads) {
  return program->arena_bytes + (scratch_stride(program) + (int64_t)sizeof(tc_portion)) * threads +
         (program->pointer_count + 1) * (int64_t)sizeof(void *);
}

int32_t tc_context_create(const tc_program *program, int32_t threads, tc_context **out, tc_error *error) {
  *out = NULL;
  if (!program->finished || threads < 1 || threads > 1024) {
    return tc_error_set(error, TC_INVALID, "the program is not finished, or %d threads were asked for", threads);
  }
  tc_context *context = calloc(1, sizeof(*context));
  if (context) {
    context->threads = threads;
    context->scratch_stride = scratch_stride(program);
    context->arena = tc_allocate(program->arena_bytes);
    context->scratch = tc_allocate(context->scratch_stride * threads);
    context->portions = tc_allocate(threads * (int64_t)sizeof(tc_portion));
    context->pointers = calloc((size_t)program->pointer_count + 1, sizeof(void *));
  }
  if (!context || !context->arena || !context->scratch || !context->portions || !context->pointers) {
    tc_context_destroy(context);
    return tc_error_set(error, TC_NO_MEMORY, "no memory for an arena of %lld bytes and scratch of %lld",
                        (long long)program->arena_bytes, (long long)program->scratch_bytes);
  }
  resolve_fixed(program, context);
  *out = context;
  return TC_OK;
}

/* Sets the pointers into the caller's buffers, after checking their alignment. */
static int32_t resolve_buffers(const tc_program *program, tc_context *context, void *const *inputs,
                               void *const *outputs, tc_error *error) {
  for (int32_t i = 0; i < program->input_count; i++) {
    if (program->inputs[i].bytes && (uintptr_t)inputs[i] % (uintptr_t)program->inputs[i].alignment) {
      return tc_error_set(error, TC_INVALID, "input %d is not aligned to its element size", i);
    }
  }
  for (int32_t i = 0; i < program->output_count; i++) {
    if (program->outputs[i].bytes && (uintptr_t)outputs[i] % (uintptr_t)program->outputs[i].alignment) {
      return tc_error_set(error, TC_INVALID, "output %d is not aligned to its element size", i);
    }
  }
  for (int64_t i = 0; i < program->patch_count; i++) {
    const tc_patch *patch = &program->patches[i];
    void *base = (patch->operand.space == TC_INPUT ? inputs : outputs)[patch->operand.index];
    context->pointers[patch->pointer] = (char *)base + patch->operand.offset;
  }
  return TC_OK;
}

/* One step, of which every thread has a portion: the same part of every step, so that a thread finds in its own caches
 * what it wrote in the step before. Who has finished takes pieces of the others' portions. */
typedef struct tc_task {
  const tc_kernel *kernel;
  const tc_step *step;
  const tc_context *context;
  int64_t l2_bytes;
  _Atomic(const char *) *failure;
  int threads;
  int64_t piece; /* units */
} tc_task;

static tc_call make_call(const tc_task *task, int thread) {
  return (tc_call){.params = task->step->params,
                   .operands = task->context->pointers + task->step->first_pointer,
                   .state = task->step->state,
                   .scratch = task->context->scratch + thread * task->context->scratch_stride,
                   .l2_bytes = task->l2_bytes,
                   .failure = task->failure};
}

static void run_pieces(void *argument, int thread) {
  const tc_task *task = argument;
  if (thread >= task->threads) {
    return;
  }
  const tc_call call = make_call(task, thread);
  for (int i = 0; i < task->threads; i++) {
    tc_portion *portion = &task->context->portions[(thread + i) % task->threads];
    for (;;) {
      const int64_t begin = atomic_fetch_add_explicit(&portion->next, task->piece, memory_order_relaxed);
      if (begin >= portion->end) {
        break;
      }
      task->kernel->run(&call, begin, tc_min(begin + task->piece, portion->end));
    }
  }
}

/* The units that a step has to do: those of the rows that there are, if an earlier step has counted them. */
static int64_t units_of(const tc_step *step, const tc_context *context) {
  if (!step->rows) {
    return step->units;
  }
  const int64_t *count = context->pointers[step->first_pointer + step->operand_count];
  const __int128 wanted = tc_max(tc_min(*count, step->rows), 0);
  return (int64_t)((wanted * step->units + step->rows - 1) / step->rows);
}

/* Runs one step on the calling thread, or on all threads if it is worth it. */
static void run_step(tc_task *task, tc_pool *pool) {
  enum { PIECES_PER_THREAD = 4 };
  const int64_t units = units_of(task->step, task->context), threads = task->threads;
  if (threads > 1 && units > 1 && task->step->parallel) {
    task->piece = tc_max(units / (threads * PIECES_PER_THREAD), 1);
    for (int64_t i = 0; i < threads; i++) {
      tc_portion *portion = &task->context->portions[i];
      atomic_store_explicit(&portion->next, units * i / threads, memory_order_relaxed);
      portion->end = units * (i + 1) / threads;
    }
    tc_pool_run(pool, run_pieces, task);
  } else if (units) {
    const tc_call call = make_call(task, 0);
    task->kernel->run(&call, 0, units);
  }
}

/* Runs the steps one after another; returns the index of the one that failed, or -1. */
static int64_t run_steps(const tc_program *program, tc_context *context, tc_pool *pool, double *seconds,
                         _Atomic(const char *) *failure) {
  const int pool_threads = pool ? tc_pool_threads(pool) : 1;
  tc_task task = {.context = context,
                  .l2_bytes = program->l2_bytes,
                  .failure = failure,
                  .threads = pool_threads < context->threads ? pool_threads : context->threads};
  for (int64_t s = 0; s < program->step_count; s++) {
    const double start = seconds ? tc_seconds_now() : 0;
    task.step = &program->steps[s];
    task.kernel = &program->isa->kernels[task.step->kernel];
    run_step(&task, pool);
    if (seconds) {
      seconds[s] = tc_seconds_now() - start;
    }
    if (atomic_load_explicit(failure, memory_order_relaxed)) {
      return s;
    }
  }
  return -1;
}

int32_t tc_run_profiled(const tc_program *program, tc_context *context, tc_pool *pool, void *const *inputs,
                        void *const *outputs, double *seconds, tc_error *error) {
  if (resolve_buffers(program, context, inputs, outputs, error)) {
    return error->code;
  }
  _Atomic(const char *) failure = NULL;
  const bool entered = tc_pool_enter(pool);
  const int64_t failed = run_steps(program, context, entered ? pool : NULL, seconds, &failure);
  if (entered) {
    tc_pool_leave(pool);
  }
  if (failed >= 0) {
    return tc_error_set(error, TC_FAILED, "instruction %lld (%s): %.200s", (long long)failed,
                        tc_kernel_infos[program->steps[failed].kernel].name, atomic_load(&failure));
  }
  return TC_OK;
}

int32_t tc_run(const tc_program *program, tc_context *context, tc_pool *pool, void *const *inputs, void *const *outputs,
               tc_error *error) {
  return tc_run_profiled(program, context, pool, inputs, outputs, NULL, error);
}
