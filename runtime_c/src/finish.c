/* Finishing a program: every kernel validates its call, states what it needs, and packs its weights. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "program.h"

/* Below this cost (operations or bytes) a call is done before another thread has woken up. */
static const double parallel_cost = 50e3;

/* The bytes that an operand's buffer has; caller-owned buffers grow with what the program touches. */
static int64_t available(const tc_program *program, const tc_operand *operand) {
  switch (operand->space) {
    case TC_CONSTANT:
      return program->constants[operand->index].bytes;
    case TC_ARENA:
      return program->arena_bytes;
    default:
      return TC_MAX_BYTES;
  }
}

static void require(tc_requirement *buffer, int64_t bytes, int32_t alignment) {
  buffer->bytes = tc_max(buffer->bytes, bytes);
  buffer->alignment = alignment > buffer->alignment ? alignment : buffer->alignment;
}

static bool is_aligned(const void *data, int32_t alignment) { return (uintptr_t)data % (uintptr_t)alignment == 0; }

/* Checks one operand against its buffer, and notes what a caller's buffer must hold. */
static void bound_operand(tc_program *program, tc_prepare *prepare, int index, char role) {
  const tc_operand *operand = &prepare->operands[index];
  if (operand->space == TC_NONE) {
    return;
  }
  const int64_t extent = prepare->extents[index];
  const int32_t alignment = prepare->alignments[index];
  TC_REQUIRE(prepare, extent >= 0, "operand %d: the kernel did not state what it touches", index);
  if (extent == 0) {
    return;
  }
  const int64_t end = operand->offset + extent, size = available(program, operand);
  TC_REQUIRE(prepare, end <= size, "operand %d ends at byte %lld of a buffer of %lld", index, (long long)end,
             (long long)size);
  TC_REQUIRE(prepare, operand->offset % alignment == 0, "operand %d: offset %lld is not a multiple of %d", index,
             (long long)operand->offset, alignment);
  if (operand->space == TC_CONSTANT) {
    TC_REQUIRE(prepare, role == 'p' || is_aligned(program->constants[operand->index].data, alignment),
               "operand %d: the constant is not aligned to its element size", index);
  } else if (operand->space == TC_INPUT) {
    require(&program->inputs[operand->index], end, alignment);
  } else if (operand->space == TC_OUTPUT) {
    require(&program->outputs[operand->index], end, alignment);
  }
}

/* The data of a constant operand, so that a prepare hook can read it; NULL if its offset is past the end. */
static const void *constant_data(const tc_program *program, const tc_operand *operand) {
  if (operand->space != TC_CONSTANT || operand->offset > program->constants[operand->index].bytes) {
    return NULL;
  }
  return (const char *)program->constants[operand->index].data + operand->offset;
}

/* Runs the prepare hook and checks everything that it stated. */
static void prepare_step(tc_program *program, tc_step *step, tc_prepare *prepare) {
  const char *roles = tc_kernel_infos[step->kernel].signature;
  for (int i = 0; i < TC_MAX_PLACES; i++) {
    prepare->extents[i] = -1;
    prepare->alignments[i] = 1;
  }
  for (int i = 0; i < step->operand_count; i++) {
    prepare->constants[i] = constant_data(program, &step->operands[i]);
    prepare->constant_bytes[i] =
        prepare->constants[i] ? available(program, &step->operands[i]) - step->operands[i].offset : 0;
  }
  program->isa->kernels[step->kernel].prepare(prepare);
  tc_touch(prepare, step->operand_count, 1, sizeof(int64_t)); /* the number of rows */
  for (int i = 0; i <= step->operand_count && !tc_refused(prepare); i++) {
    bound_operand(program, prepare, i, tc_role(roles[i]));
  }
  TC_REQUIRE(prepare,
             prepare->units >= 0 && prepare->units <= TC_MAX_BYTES && prepare->state_bytes <= TC_MAX_BYTES &&
                 prepare->scratch_bytes <= TC_MAX_BYTES,
             "the call is too large");
}

static tc_weights_key weights_key(const tc_program *program, const tc_step *step, const tc_prepare *prepare) {
  tc_weights_key key;
  memset(&key, 0, sizeof(key));
  key.isa = program->isa;
  key.kernel = step->kernel;
  key.bytes = prepare->state_bytes;
  memcpy(key.shared, prepare->shared, sizeof(key.shared));
  for (int i = 0; i < step->operand_count; i++) {
    key.constants[i] = prepare->constants[i];
  }
  return key;
}

/* Exchanges constants that do not lie at a multiple of their element size for copies that do; false without memory. */
static bool align_constants(tc_prepare *prepare, int operands, void **copies) {
  for (int i = 0; i < operands; i++) {
    if (!prepare->constants[i] || prepare->extents[i] <= 0 ||
        is_aligned(prepare->constants[i], prepare->alignments[i])) {
      continue;
    }
    copies[i] = malloc((size_t)prepare->extents[i]);
    if (!copies[i]) {
      return false;
    }
    memcpy(copies[i], prepare->constants[i], (size_t)prepare->extents[i]);
    prepare->constants[i] = copies[i];
  }
  return true;
}

static int32_t pack_step(const tc_program *program, const tc_step *step, const tc_prepare *prepare, void *state) {
  tc_prepare aligned = *prepare;
  void *copies[TC_MAX_OPERANDS] = {NULL};
  const bool ready = align_constants(&aligned, step->operand_count, copies);
  if (ready) {
    program->isa->kernels[step->kernel].pack(&aligned, state);
  }
  for (int i = 0; i < step->operand_count; i++) {
    free(copies[i]);
  }
  return ready ? TC_OK : tc_error_set(prepare->error, TC_NO_MEMORY, "no memory to pack weights");
}

/* Packs the weights of a step, or finds those that another program has packed. */
static int32_t give_state(tc_program *program, tc_step *step, const tc_prepare *prepare) {
  const bool shared = prepare->shareable && program->weights;
  const tc_weights_key key = weights_key(program, step, prepare);
  step->packed = shared ? tc_weights_find(program->weights, &key) : NULL;
  if (!step->packed) {
    step->state = tc_allocate(prepare->state_bytes);
    if (!step->state) {
      return tc_error_set(prepare->error, TC_NO_MEMORY, "no memory for %lld bytes of packed weights",
                          (long long)prepare->state_bytes);
    }
    if (pack_step(program, step, prepare, step->state)) {
      return prepare->error->code;
    }
    step->packed = shared ? tc_weights_add(program->weights, &key, step->state) : NULL;
  }
  if (step->packed) {
    step->state = tc_packed_state(step->packed);
  } else {
    program->state_bytes += prepare->state_bytes;
  }
  return TC_OK;
}

/* Gives the pages inside a constant back to the system, which reads them from their file again if they are needed. */
static void give_back(const tc_constant *constant) {
#ifdef MADV_DONTNEED
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)constant->data;
  const uintptr_t first = (start + page - 1) / page * page, last = (start + (uintptr_t)constant->bytes) / page * page;
  if (first < last) {
    (void)madvise((void *)first, last - first, MADV_DONTNEED);
  }
#else
  (void)constant;
#endif
}

/* Lets go of what a step has packed and no run reads; of mapped files only, since other memory would be lost. */
static void give_back_packed(const tc_program *program, const tc_step *step) {
  const char *roles = tc_kernel_infos[step->kernel].signature;
  for (int i = 0; i < step->operand_count; i++) {
    const tc_operand *operand = &step->operands[i];
    if (tc_role(roles[i]) == 'p' && operand->space == TC_CONSTANT && program->constants[operand->index].mapped) {
      give_back(&program->constants[operand->index]);
    }
  }
}

/* What a step has to do; nothing is known of one whose rows only a run counts. */
static tc_work work_of(const tc_step *step, const tc_prepare *prepare) {
  tc_work work = prepare->work;
  if (step->operands[step->operand_count].space != TC_NONE) {
    return (tc_work){.flops = 0};
  }
  const char *roles = tc_kernel_infos[step->kernel].signature;
  for (int i = 0; i < step->operand_count; i++) {
    if (tc_present(prepare, i)) {
      *(tc_role(roles[i]) == 'o' ? &work.written : &work.read) += prepare->moved[i];
    }
  }
  work.done = work.done ? work.done : work.flops + work.integer_operations;
  return work;
}

static int32_t finish_step(tc_program *program, tc_step *step, tc_error *error) {
  tc_prepare prepare = {
      .params = step->params, .operands = step->operands, .l2_bytes = program->l2_bytes, .error = error};
  const tc_kernel *kernel = &program->isa->kernels[step->kernel];
  prepare_step(program, step, &prepare);
  if (error->code) {
    return error->code;
  }
  if (kernel->pack && give_state(program, step, &prepare)) {
    return error->code;
  }
  give_back_packed(program, step);
  step->units = prepare.units;
  step->work = work_of(step, &prepare);
  step->rows = step->rows && prepare.leading % step->rows == 0 ? tc_min(step->rows, prepare.leading) : 0;
  step->parallel = prepare.units > 1 && prepare.cost >= parallel_cost;
  program->scratch_bytes = tc_max(program->scratch_bytes, prepare.scratch_bytes);
  return TC_OK;
}

/* Lists the pointers that must be set anew for every run. */
static int32_t collect_patches(tc_program *program, tc_error *error) {
  program->patches = malloc((size_t)(program->pointer_count + 1) * sizeof(tc_patch));
  if (!program->patches) {
    return tc_error_set(error, TC_NO_MEMORY, "no memory to finish the program");
  }
  for (int64_t s = 0; s < program->step_count; s++) {
    const tc_step *step = &program->steps[s];
    for (int i = 0; i <= step->operand_count; i++) {
      if (step->operands[i].space == TC_INPUT || step->operands[i].space == TC_OUTPUT) {
        program->patches[program->patch_count++] = (tc_patch){step->first_pointer + i, step->operands[i]};
      }
    }
  }
  return TC_OK;
}

/* Takes back what an attempt to finish has noted, so that the next one starts afresh. */
static void forget(tc_program *program) {
  for (int64_t i = 0; i < program->step_count; i++) {
    tc_step_drop_state(program, &program->steps[i]);
  }
  memset(program->inputs, 0, (size_t)program->input_count * sizeof(tc_requirement));
  memset(program->outputs, 0, (size_t)program->output_count * sizeof(tc_requirement));
  tc_weights_destroy(program->weights);
  program->weights = NULL;
  program->state_bytes = 0;
  program->scratch_bytes = 0;
}

static int32_t finish_steps(tc_program *program, tc_error *error) {
  for (int64_t i = 0; i < program->step_count; i++) {
    if (finish_step(program, &program->steps[i], error)) {
      char message[sizeof(error->message)];
      memcpy(message, error->message, sizeof(message));
      return tc_error_set(error, error->code, "instruction %lld (%s): %.230s", (long long)i,
                          tc_kernel_infos[program->steps[i].kernel].name, message);
    }
  }
  return collect_patches(program, error);
}

int32_t tc_program_finish(tc_program *program, tc_weights *weights, int64_t arena_bytes, tc_error *error) {
  error->code = TC_OK;
  if (program->finished || arena_bytes < 0 || arena_bytes > TC_MAX_BYTES) {
    return tc_error_set(error, TC_INVALID, "an arena of %lld bytes, or a program finished twice",
                        (long long)arena_bytes);
  }
  program->arena_bytes = arena_bytes;
  if (weights) {
    tc_weights_retain(weights);
    program->weights = weights;
  }
  if (finish_steps(program, error)) {
    forget(program);
    return error->code;
  }
  program->finished = true;
  return TC_OK;
}
