/* text_match: which texts an automaton accepts from end to end. A unit is a text. */
#ifndef TINYCOMP_KERNELS_TEXT_TEXT_MATCH_H
#define TINYCOMP_KERNELS_TEXT_TEXT_MATCH_H

#include "vocabulary.h"

#include "texts.h"

enum { TEXT_MATCH_Y, TEXT_MATCH_X, TEXT_MATCH_HEAP, TEXT_MATCH_AUTOMATON };

static void TC_NAME(tc_text_match_prepare)(tc_prepare *prepare) {
  const tc_text_match_params *p = prepare->params;
  TC_REQUIRE(prepare, p->states >= 1 && p->classes >= 1, "an automaton of %lld states and %lld classes",
             (long long)p->states, (long long)p->classes);
  tc_touch(prepare, TEXT_MATCH_Y, p->texts, 1);
  tc_touch(prepare, TEXT_MATCH_X, p->texts, sizeof(text_span));
  text_touch_heap(prepare, TEXT_MATCH_HEAP, p->x_bytes);
  tc_touch(prepare, TEXT_MATCH_AUTOMATON, text_automaton_words(prepare, p->states, p->classes), sizeof(int32_t));
  if (tc_refused(prepare)) {
    return;
  }
  prepare->units = p->texts;
  prepare->cost = 64.0 * (double)p->texts;
  prepare->work.integer_operations = (double)p->texts;
}

static void TC_NAME(tc_text_match)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_text_match_params *p = call->params;
  const int32_t *automaton = call->operands[TEXT_MATCH_AUTOMATON];
  for (int64_t i = begin; i < end; i++) {
    text_bytes text;
    if (!text_of(call, call->operands[TEXT_MATCH_X], i, call->operands[TEXT_MATCH_HEAP], p->x_bytes, &text)) {
      return;
    }
    int64_t state = 0;
    for (int64_t k = 0; k < text.length && state >= 0; k++) {
      state = text_step(automaton, p->states, p->classes, state, text.data[k]);
    }
    ((uint8_t *)call->operands[TEXT_MATCH_Y])[i] = state >= 0 && text_accepts(automaton, p->states, p->classes, state);
  }
}

#endif
