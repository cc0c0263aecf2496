/* Counts the instructions of an emulated RISC-V, and finds out how deep the stack was. */
#include <stdint.h>
#include <stdio.h>

enum { PAINTED = 32768, PAINT = 0x5A5A5A5A };
static uint64_t begun;
static uintptr_t outside;

static uint64_t instructions(void) {
  uint32_t high, low, again;
  do {
    __asm volatile("csrr %0, minstreth\n\tcsrr %1, minstret\n\tcsrr %2, minstreth"
                   : "=r"(high), "=r"(low), "=r"(again));
  } while (high != again);
  return (uint64_t)high << 32 | low;
}
void test_begin(void) {
  outside = (uintptr_t)__builtin_frame_address(0);
  for (volatile uint32_t *p = (volatile uint32_t *)(outside - PAINTED); (uintptr_t)p < outside - 64; p++) {
    *p = PAINT;
  }
  begun = instructions();
}
void test_end(void) {
  const uint64_t count = instructions() - begun;
  const volatile uint32_t *p = (const volatile uint32_t *)(outside - PAINTED);
  while (*p == PAINT) {
    p++;
  }
  printf("ticks %lu\nstack %lu\n", (unsigned long)count, (unsigned long)(outside - (uintptr_t)p));
}
