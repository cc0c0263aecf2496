#include "initialised.h"

#include <stdlib.h>
#include <string.h>

/* No program that a compiler writes comes near these: with them the walk is linear in the number of steps. */
enum { MOST_SPANS = 4096, MOST_COLUMNS = 256, MOST_COUNTED = 256 };

static bool is_before(const tc_stretch *a, int32_t buffer, int64_t begin) {
  return a->buffer < buffer || (a->buffer == buffer && a->end < begin);
}

/* The first span that does not end before a place. */
static int64_t find(const tc_stretches *spans, int32_t buffer, int64_t begin) {
  int64_t low = 0, high = spans->count;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (is_before(&spans->items[middle], buffer, begin)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

/* Adds a span, joined with those that it meets; false without memory. Where there are too many, it is left out, or
 * with `all` the one before it takes in what lies in between. */
static bool add(tc_stretches *spans, tc_stretch span, bool all) {
  const int64_t first = find(spans, span.buffer, span.begin);
  int64_t behind = first;
  while (behind < spans->count && spans->items[behind].buffer == span.buffer &&
         spans->items[behind].begin <= span.end) {
    span.begin = tc_min(span.begin, spans->items[behind].begin);
    span.end = tc_max(span.end, spans->items[behind].end);
    behind++;
  }
  if (behind == first && spans->count >= MOST_SPANS) {
    if (!all) {
      return true;
    }
    if (first > 0 && spans->items[first - 1].buffer == span.buffer) {
      spans->items[first - 1].end = span.end;
      return true;
    }
  }
  if (behind == first && !tc_reserve((void **)&spans->items, spans->count, &spans->capacity, sizeof(tc_stretch))) {
    return false;
  }
  memmove(&spans->items[first + 1], &spans->items[behind], (size_t)(spans->count - behind) * sizeof(tc_stretch));
  spans->items[first] = span;
  spans->count += 1 - (behind - first);
  return true;
}

static bool holds(const tc_stretches *spans, const tc_stretch *span) {
  const int64_t i = find(spans, span->buffer, span->begin);
  return i < spans->count && spans->items[i].buffer == span->buffer && spans->items[i].begin <= span->begin &&
         spans->items[i].end >= span->end;
}

static bool meets(const tc_stretches *spans, const tc_stretch *span) {
  const int64_t i = find(spans, span->buffer, span->begin + 1);
  return i < spans->count && spans->items[i].buffer == span->buffer && spans->items[i].begin < span->end;
}

static tc_columns *columns_of(tc_walk *walk, const tc_reach *reach, bool make) {
  for (int64_t i = 0; i < walk->columns_count; i++) {
    if (walk->columns[i].rows == reach->rows && walk->columns[i].stride == reach->stride) {
      return &walk->columns[i];
    }
  }
  if (make && walk->columns_count == MOST_COLUMNS) { /* the oldest are forgotten */
    tc_columns *oldest = &walk->columns[walk->oldest_columns++ % MOST_COLUMNS];
    oldest->rows = reach->rows;
    oldest->stride = reach->stride;
    oldest->first.count = 0;
    return oldest;
  }
  if (!make || !tc_reserve((void **)&walk->columns, walk->columns_count, &walk->columns_capacity, sizeof(tc_columns))) {
    walk->enough = walk->enough && !make;
    return NULL;
  }
  tc_columns *made = &walk->columns[walk->columns_count++];
  if (walk->columns_made < walk->columns_count) {
    made->first = (tc_stretches){0};
    walk->columns_made = walk->columns_count;
  }
  made->rows = reach->rows;
  made->stride = reach->stride;
  made->first.count = 0;
  return made;
}

static void write_span(tc_walk *walk, tc_stretch span, const tc_reach *reach) {
  if (reach->rows == 1) {
    walk->enough = walk->enough && add(&walk->written, span, false);
  } else if (reach->rows > 1) {
    tc_columns *columns = columns_of(walk, reach, true);
    const tc_stretch first = {span.buffer, span.begin, span.begin + reach->columns};
    if (!columns || !add(&columns->first, first, false)) {
      walk->enough = false;
      return;
    }
    if (!holds(&columns->first, &first)) {
      return;
    }
    const tc_stretch *side = &columns->first.items[find(&columns->first, first.buffer, first.begin)];
    if (side->end - side->begin >= reach->stride) { /* side by side they leave nothing out */
      const int64_t end = side->end + (reach->rows - 1) * reach->stride;
      walk->enough = walk->enough && add(&walk->written, (tc_stretch){span.buffer, side->begin, end}, false);
    }
  }
}

static void read_span(tc_walk *walk, tc_stretch span, const tc_reach *reach) {
  if (holds(&walk->written, &span)) {
    return;
  }
  if (reach->rows > 1) {
    const tc_columns *columns = columns_of(walk, reach, false);
    const tc_stretch first = {span.buffer, span.begin, span.begin + reach->columns};
    if (columns && holds(&columns->first, &first)) {
      return;
    }
  }
  /* What of it has been written is not read as it was before, and may be cleared with the rest. */
  const int64_t i = find(&walk->written, span.buffer, span.begin);
  if (i < walk->written.count && walk->written.items[i].buffer == span.buffer &&
      walk->written.items[i].begin <= span.begin) {
    span.begin = walk->written.items[i].end;
  }
  walk->enough = walk->enough && add(&walk->instance->holes, span, true);
}

/* Clears what lies in the arena of some spans and not in others. */
static void clear_all_but(const tc_stretches *spans, const tc_stretches *others, char *arena) {
  for (int64_t i = 0; i < spans->count; i++) {
    const tc_stretch *span = &spans->items[i];
    int64_t begin = span->begin;
    for (int64_t k = find(others, span->buffer, begin); span->buffer == TC_IN_ARENA && begin < span->end; k++) {
      const bool is_left_out = k < others->count && others->items[k].buffer == TC_IN_ARENA;
      const int64_t end = is_left_out ? tc_min(others->items[k].begin, span->end) : span->end;
      if (begin < end) {
        memset(arena + begin, 0, (size_t)(end - begin));
      }
      begin = is_left_out ? tc_max(begin, others->items[k].end) : span->end;
    }
  }
}

void tc_clear_arena(const tc_instance *instance, char *arena) {
  static const tc_stretches none = {0};
  clear_all_but(&instance->holes, &none, arena);
}

int64_t tc_written_bytes(const tc_program *program, const tc_instance *instance, int32_t output) {
  const int64_t i = find(&instance->holes, output, 0);
  if (i < instance->holes.count && instance->holes.items[i].buffer == output) {
    return instance->holes.items[i].begin;
  }
  const int64_t value = program->output_values ? program->output_values[output] : -1;
  return value < 0 ? instance->outputs[output].bytes : instance->values[value];
}

/* The place of a caller's output or of a part of the arena. */
static tc_stretch span_of(const tc_program *program, const tc_instance *instance, const tc_operand *operand,
                          int64_t bytes) {
  const bool is_arena = operand->space == TC_ARENA;
  const int64_t start = is_arena && program->piece_count ? instance->starts[operand->index] : 0;
  const int64_t begin = start + operand->offset;
  return (tc_stretch){is_arena ? TC_IN_ARENA : operand->index, begin, begin + bytes};
}

static bool are_equal(const tc_stretch *a, const tc_stretch *b) {
  return a->buffer == b->buffer && a->begin == b->begin && a->end == b->end;
}

static bool overlap(const tc_stretch *a, const tc_stretch *b) {
  return a->buffer == b->buffer && a->begin < b->end && b->begin < a->end;
}

/* Whether both are counted by the same counts, of which nothing has changed. */
static bool are_counted(const tc_walk *walk, const tc_stretch *segments, const tc_stretch *counts) {
  for (int64_t i = 0; i < walk->counted_count; i++) {
    if (are_equal(&walk->counted[i].segments, segments) && are_equal(&walk->counted[i].counts, counts)) {
      return true;
    }
  }
  return false;
}

/* What is written somewhere is what was counted there no more. */
static void forget_counted(tc_walk *walk, const tc_stretch *written) {
  int64_t left = 0;
  for (int64_t i = 0; i < walk->counted_count; i++) {
    const tc_counted_segments *counted = &walk->counted[i];
    if (!overlap(&counted->segments, written) && !overlap(&counted->counts, written)) {
      walk->counted[left++] = *counted;
    }
  }
  walk->counted_count = left;
}

static void note_counted(tc_walk *walk, tc_stretch segments, tc_stretch counts) {
  if (walk->counted_count == MOST_COUNTED) {
    return;
  }
  if (!tc_reserve((void **)&walk->counted, walk->counted_count, &walk->counted_capacity, sizeof(tc_counted_segments))) {
    walk->enough = false;
    return;
  }
  walk->counted[walk->counted_count++] = (tc_counted_segments){segments, counts};
}

static bool is_memory(const tc_operand *operand) { return operand->space == TC_ARENA || operand->space == TC_OUTPUT; }

static bool is_written(const tc_step *step, int32_t operand) {
  return step->control ? operand >= step->operand_count - step->control->results
                       : tc_role(tc_kernel_infos[step->kernel].signature[operand]) == 'o';
}

/* The part of a step's operand that its kernel reaches. */
static tc_stretch reached_in(const tc_program *program, const tc_instance *instance, const tc_step *step,
                             int32_t operand) {
  const tc_reach *reach = &instance->reaches[step->first_pointer + operand];
  return span_of(program, instance, &step->operands[operand], tc_max(reach->extent, 0));
}

static tc_stretch reached(const tc_walk *walk, const tc_step *step, int32_t operand) {
  return reached_in(walk->program, walk->instance, step, operand);
}

/* Whether nothing else that the step reads or writes lies where one of its operands does: else its threads may change
 * under each other's hands what they count by. */
static bool stands_alone(const tc_walk *walk, const tc_step *step, int32_t operand) {
  const tc_stretch span = reached(walk, step, operand);
  for (int32_t i = 0; i < step->operand_count; i++) {
    if (i != operand && is_memory(&step->operands[i])) {
      const tc_stretch other = reached(walk, step, i);
      if (overlap(&span, &other)) {
        return false;
      }
    }
  }
  return true;
}

/* Whether the counts of an operand say how much of it holds values. */
static bool is_counted(const tc_walk *walk, const tc_step *step, int32_t operand) {
  const int32_t counter = walk->instance->reaches[step->first_pointer + operand].counter;
  return counter && is_memory(&step->operands[counter]) && stands_alone(walk, step, operand) &&
         stands_alone(walk, step, counter);
}

static void go_through_read(tc_walk *walk, const tc_step *step, int32_t operand) {
  const tc_reach *reach = &walk->instance->reaches[step->first_pointer + operand];
  const tc_stretch span = reached(walk, step, operand);
  if (is_counted(walk, step, operand)) {
    const tc_stretch counts = reached(walk, step, reach->counter);
    if (are_counted(walk, &span, &counts)) {
      return;
    }
  }
  read_span(walk, span, reach);
}

static void go_through_written(tc_walk *walk, const tc_step *step, int32_t operand, bool is_setup, bool late) {
  const tc_reach *reach = &walk->instance->reaches[step->first_pointer + operand];
  tc_stretch span = reached(walk, step, operand);
  forget_counted(walk, &span);
  walk->instance->repeats = walk->instance->repeats || (!is_setup && meets(&walk->kept, &span));
  walk->enough = walk->enough && (!is_setup || add(&walk->kept, span, true));
  if (reach->counter) {
    /* Only what is found out as a size is known to be what the walk goes by. */
    const bool is_found = step->finds && step->found_operand == reach->counter && stands_alone(walk, step, operand);
    const int64_t count = is_found ? walk->instance->values[step->symbol] : 0;
    if (count < (span.end - span.begin) / tc_max(reach->counted_bytes, 1)) {
      span.end = span.begin + count * reach->counted_bytes;
    }
  }
  if (span.begin < span.end && (span.buffer == TC_IN_ARENA || !(late || reach->counter))) {
    write_span(walk, span, reach);
  }
}

static void go_through(tc_walk *walk, int64_t index, const tc_step *step) {
  const tc_reach *reaches = &walk->instance->reaches[step->first_pointer];
  const bool late = step->late, is_setup = index < walk->program->setup_count;
  enum { READ, WRITE, COUNT };
  for (int turn = READ; turn <= COUNT; turn++) {
    for (int32_t i = 0; i < step->operand_count; i++) {
      if (!is_memory(&step->operands[i]) || is_written(step, i) != (turn != READ) || reaches[i].extent <= 0) {
        continue;
      }
      if (turn == READ) {
        go_through_read(walk, step, i);
      } else if (turn == WRITE) {
        go_through_written(walk, step, i, is_setup, late);
      } else if (!reaches[i].counted_bytes && is_counted(walk, step, i)) {
        note_counted(walk, reached(walk, step, i), reached(walk, step, reaches[i].counter));
      }
    }
  }
}

/* What is read of an output when a run has ended. */
static tc_stretch result(const tc_program *program, const tc_instance *instance, int32_t output) {
  const int64_t value = program->output_values ? program->output_values[output] : -1;
  return (tc_stretch){output, 0, value < 0 ? instance->outputs[output].bytes : instance->values[value]};
}

/* What is read when a run has ended: outputs, of which some lie in the arena. */
static void go_through_results(tc_walk *walk) {
  static const tc_reach whole = {.rows = 1};
  const tc_program *program = walk->program;
  const tc_instance *instance = walk->instance;
  for (int32_t i = 0; i < program->output_count; i++) {
    const tc_stretch span = result(program, instance, i);
    if (span.begin < span.end) {
      read_span(walk, span, &whole);
    }
  }
  for (int64_t i = 0; i < program->left_count; i++) {
    const tc_left *left = &program->left[i];
    const int64_t room = instance->values[program->pieces[left->place.index].value];
    const int64_t bytes = tc_min(instance->values[left->bytes], room - left->place.offset);
    if (bytes > 0) {
      read_span(walk, span_of(program, instance, &left->place, bytes), &whole);
    }
  }
}

static int32_t walk_through(const tc_program *program, tc_instance *instance, tc_walk *walk, tc_error *error) {
  walk->program = program;
  walk->instance = instance;
  walk->written.count = walk->kept.count = 0;
  walk->columns_count = walk->oldest_columns = walk->counted_count = 0;
  walk->enough = true;
  instance->holes.count = 0;
  instance->repeats = false;
  for (int64_t s = 0; s < program->step_count; s++) {
    go_through(walk, s, &instance->steps[s]);
  }
  go_through_results(walk);
  instance->repeats = instance->repeats || (program->setup_count && instance->holes.count);
  return walk->enough ? TC_OK : tc_error_set(error, TC_NO_MEMORY, "no memory to see what a run writes");
}

/* Finds, for every operand in memory and for every output at the end of a run, the last step before that writes the
 * same buffer; false without memory. */
static bool find_writers(const tc_program *program, tc_instance *instance) {
  const size_t places = (size_t)program->pointer_count + (size_t)program->output_count;
  const size_t buffers = (size_t)program->piece_count + (size_t)program->output_count;
  tc_writer *writers = malloc((places + 1) * sizeof(tc_writer)), *last = malloc((buffers + 1) * sizeof(tc_writer));
  if (!writers || !last) {
    free(writers);
    free(last);
    return false;
  }
  for (size_t i = 0; i < places + buffers; i++) {
    (i < places ? &writers[i] : &last[i - places])->step = -1;
  }
  for (int64_t s = 0; s < program->step_count; s++) {
    const tc_step *step = &instance->steps[s];
    for (int turn = 0; turn < 2; turn++) { /* what is read, and then what is written */
      for (int32_t i = 0; i < step->operand_count; i++) {
        const tc_operand *operand = &step->operands[i];
        const bool is_found = operand->space == TC_OUTPUT || (operand->space == TC_ARENA && program->piece_count);
        if (is_found && is_written(step, i) == (turn == 1)) {
          tc_writer *before = &last[operand->index + (operand->space == TC_ARENA ? 0 : program->piece_count)];
          writers[step->first_pointer + i] = *before;
          *before = turn == 1 ? (tc_writer){s, i} : *before;
        }
      }
    }
  }
  memcpy(&writers[program->pointer_count], &last[program->piece_count], (size_t)program->output_count * sizeof(*last));
  free(last);
  instance->writers = writers;
  return true;
}

/* Adds what a step writes to columns of the same rows that meet it: true if together they leave nothing out, and then
 * all of them as one piece. The first ones decide which rows these are. */
static bool joins(tc_columns *columns, tc_stretch *side, const tc_reach *reach, tc_stretch *written) {
  const tc_stretch own = {written->buffer, written->begin, written->begin + reach->columns};
  if (!columns->rows) {
    columns->rows = reach->rows;
    columns->stride = reach->stride;
    *side = own;
  }
  if (columns->rows != reach->rows || columns->stride != reach->stride || own.begin > side->end ||
      own.end < side->begin) {
    return false;
  }
  side->begin = tc_min(side->begin, own.begin);
  side->end = tc_max(side->end, own.end);
  *written = (tc_stretch){own.buffer, side->begin, side->end + (reach->rows - 1) * reach->stride};
  return side->end - side->begin >= reach->stride;
}

/* Whether a writer and some of those before it in the same buffer leave no hole in a span. */
static bool covers(const tc_program *program, const tc_instance *instance, tc_writer writer, tc_stretch span) {
  enum { MOST_WRITERS = 16 };
  tc_columns columns = {0};
  tc_stretch side;
  for (int i = 0; i < MOST_WRITERS && writer.step >= 0 && span.begin < span.end; i++) {
    const tc_step *step = &instance->steps[writer.step];
    const int64_t place = step->first_pointer + writer.operand;
    const tc_reach *reach = &instance->reaches[place];
    tc_stretch written = reached_in(program, instance, step, writer.operand);
    if (!reach->counter && (reach->rows == 1 || (reach->rows > 1 && joins(&columns, &side, reach, &written)))) {
      span.begin = written.begin <= span.begin ? tc_max(span.begin, written.end) : span.begin;
      span.end = written.end >= span.end ? tc_min(span.end, written.begin) : span.end;
    }
    writer = instance->writers[place];
  }
  return span.begin >= span.end;
}

/* Whether a step that is no setup writes where a setup step does. */
static bool meets_setup(const tc_program *program, const tc_instance *instance, tc_stretch span) {
  for (int64_t s = 0; s < program->setup_count; s++) {
    const tc_step *step = &instance->steps[s];
    for (int32_t i = 0; i < step->operand_count; i++) {
      const tc_stretch kept = reached_in(program, instance, step, i);
      if (is_memory(&step->operands[i]) && is_written(step, i) && overlap(&kept, &span)) {
        return true;
      }
    }
  }
  return false;
}

/* Sees at a glance that there is no hole, in nearly every program: what is read the last steps before have written.
 * False if it takes a closer look. */
static bool is_whole(const tc_program *program, tc_instance *instance) {
  bool whole = true, repeats = false;
  for (int64_t s = 0; whole && s < program->step_count; s++) {
    const tc_step *step = &instance->steps[s];
    for (int32_t i = 0; whole && i < step->operand_count; i++) {
      const int64_t place = step->first_pointer + i;
      if (!is_memory(&step->operands[i]) || instance->reaches[place].extent <= 0) {
        continue;
      }
      const tc_stretch span = reached_in(program, instance, step, i);
      if (!is_written(step, i)) {
        whole = covers(program, instance, instance->writers[place], span);
      } else if (program->setup_count && s >= program->setup_count) {
        repeats = repeats || meets_setup(program, instance, span);
      }
    }
  }
  for (int32_t i = 0; whole && i < program->output_count; i++) {
    const tc_stretch span = result(program, instance, i);
    whole = span.begin >= span.end || covers(program, instance, instance->writers[program->pointer_count + i], span);
  }
  if (whole) {
    instance->holes.count = 0;
    instance->repeats = repeats;
  }
  return whole;
}

int32_t tc_find_holes(const tc_program *program, tc_instance *instance, tc_error *error) {
  if (!program->found_count) {
    if (!program->left_count && instance != &program->own) { /* of which there is one only */
      if (!instance->writers && !find_writers(program, instance)) {
        return tc_error_set(error, TC_NO_MEMORY, "no memory to see what a run writes");
      }
      if (is_whole(program, instance)) {
        return TC_OK;
      }
    }
    tc_walk walk = {0};
    const int32_t status = walk_through(program, instance, &walk, error);
    tc_walk_free(&walk);
    return status;
  }
  /* Runs go through it once more, and have the memory that this took. */
  instance->walk = instance->walk ? instance->walk : calloc(1, sizeof(tc_walk));
  return instance->walk ? walk_through(program, instance, instance->walk, error)
                        : tc_error_set(error, TC_NO_MEMORY, "no memory to see what a run writes");
}

int32_t tc_find_more_holes(const tc_program *program, tc_instance *instance, char *arena, tc_error *error) {
  tc_stretches *before = &instance->walk->before;
  const tc_stretches spare = *before;
  *before = instance->holes;
  instance->holes = spare;
  if (!tc_find_holes(program, instance, error)) {
    clear_all_but(&instance->holes, before, arena);
  }
  return error->code;
}
