/* What the kernels of two broadcast operands share: a walk over rows, each handed to one function of
 * y[i] = f(a[i * a_step], b[i * b_step]) with steps of 0 or 1. Operands with other steps are collected in scratch.
 * State: the plan. Units are pieces of rows. */

enum { BINARY_Y, BINARY_A, BINARY_B };

enum { BINARY_PIECE = 2048, BINARY_WIDEST = 8 };

typedef void (*binary_fn)(void *y, const void *a, int64_t a_step, const void *b, int64_t b_step, int64_t count);

typedef struct binary_plan {
  tc_rows rows;
  binary_fn function;
} binary_plan;

/* Whether a strided piece can be handed to a row function as it is. */
TC_INLINE bool binary_plain(int64_t step) { return step == 0 || step == 1; }

static binary_plan binary_plan_make(const tc_binary_params *p, binary_fn function) {
  tc_nd nd = tc_nd_make(TC_EIGHT(p, size));
  tc_nd_add_contiguous(&nd);
  tc_nd_add(&nd, TC_EIGHT(p, a_stride));
  tc_nd_add(&nd, TC_EIGHT(p, b_stride));
  tc_nd_collapse(&nd);
  return (binary_plan){tc_rows_make(&nd, BINARY_PIECE), function};
}

/* The body of every prepare function; y_size and x_size are element sizes in bytes. */
static void binary_prepare(tc_prepare *prepare, const tc_binary_params *p, binary_fn function, int y_size, int x_size) {
  TC_REQUIRE(prepare, function, "there is no operation %lld", (long long)p->op);
  const int64_t count = tc_product(prepare, TC_EIGHT(p, size), TC_ND_DIMS);
  tc_touch(prepare, BINARY_Y, count, y_size);
  tc_nd_touch(prepare, BINARY_A, TC_EIGHT(p, size), TC_EIGHT(p, a_stride), x_size);
  tc_nd_touch(prepare, BINARY_B, TC_EIGHT(p, size), TC_EIGHT(p, b_stride), x_size);
  if (tc_refused(prepare)) {
    return;
  }
  const binary_plan plan = binary_plan_make(p, function);
  const int last = plan.rows.nd.rank - 1;
  const bool plain =
      binary_plain(plan.rows.nd.strides[BINARY_A][last]) && binary_plain(plan.rows.nd.strides[BINARY_B][last]);
  prepare->units = plan.rows.units;
  prepare->cost = 3.0 * (double)count;
  prepare->state_bytes = sizeof(binary_plan);
  prepare->scratch_bytes = plain ? 0 : 2 * BINARY_PIECE * BINARY_WIDEST;
}

/* A piece of an operand with a step of 0 or 1; what lies apart is brought together in scratch. */
static const void *binary_operand(const tc_call *call, const tc_rows_walk *walk, int view, int size, int64_t *step) {
  const char *at = (const char *)call->operands[view] + walk->at[view] * size;
  *step = walk->step[view];
  if (binary_plain(*step)) {
    return at;
  }
  char *buffer = (char *)call->scratch + (view - BINARY_A) * BINARY_PIECE * BINARY_WIDEST;
  const tc_rows_walk piece = {.step = {1, *step}, .count = walk->count};
  copy_piece(buffer, at, size, &piece);
  *step = 1;
  return buffer;
}

/* The clamp of an epilogue, which products apply in registers. */
static void binary_clamp(const tc_epilogue_f32 *epilogue, float *row, int64_t count) {
  if (epilogue->activation != TC_ACT_NONE) {
    return;
  }
  for (int64_t i = 0; i < count; i += TC_LANES) {
    const int64_t lanes = tc_min(count - i, TC_LANES);
    tc_vf_store_first(row + i, tc_clamp(tc_vf_load_first(row + i, lanes), epilogue->low, epilogue->high), lanes);
  }
}

/* The body of every run function. */
static void binary_run(const tc_call *call, const tc_epilogue_f32 *epilogue, int y_size, int x_size, int64_t begin,
                       int64_t end) {
  const binary_plan *plan = call->state;
  tc_rows_walk walk = tc_rows_seek(&plan->rows, begin);
  for (int64_t unit = begin; unit < end; unit++) {
    int64_t a_step, b_step;
    const void *a = binary_operand(call, &walk, BINARY_A, x_size, &a_step);
    const void *b = binary_operand(call, &walk, BINARY_B, x_size, &b_step);
    char *y = (char *)call->operands[BINARY_Y] + walk.at[BINARY_Y] * y_size;
    plan->function(y, a, a_step, b, b_step, walk.count);
    if (epilogue) {
      binary_clamp(epilogue, (float *)y, walk.count);
      tc_activate_rows(epilogue, (float *)y, 0, 1, walk.count);
    }
    tc_rows_next(&walk);
  }
}
