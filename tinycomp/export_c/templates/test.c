/* Runs the model on inputs whose results are known. Integers must be equal, floats close. */
#include <math.h>
#include <stdio.h>

#include "@name@.h"

@arrays@

#ifdef TEST_SETUP /* of a board: what must happen before and after a run, such as counting instructions */
void test_begin(void);
void test_end(void);
#else
static void test_begin(void) {}
static void test_end(void) {}
#endif

int main(void) {
@read_weights@
  long wrong = 0;
@runs@
  printf("%ld of @total@ results differ\n", wrong);
  return wrong != 0;
}
