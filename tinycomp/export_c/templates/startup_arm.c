/* Starts an emulated Cortex-M, counts instructions with its system timer, and finds out how deep the stack was. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern uint32_t stack_top, data_begin, data_end, data_load, bss_begin, bss_end;
extern void initialise_monitor_handles(void);
int main(void);

#define CONTROL (*(volatile uint32_t *)0xE000E010)
#define RELOAD (*(volatile uint32_t *)0xE000E014)
#define VALUE (*(volatile uint32_t *)0xE000E018)
enum { PAINTED = 32768, PAINT = 0x5A5A5A5A };
static volatile uint32_t wraps;
static uintptr_t outside;

static void reset(void) {
#if defined(__ARM_FP)
  *(volatile uint32_t *)0xE000ED88 |= 0xFu << 20; /* the floating-point unit */
  __asm volatile("dsb\n\tisb");
#endif
  memcpy(&data_begin, &data_load, (uintptr_t)&data_end - (uintptr_t)&data_begin);
  memset(&bss_begin, 0, (uintptr_t)&bss_end - (uintptr_t)&bss_begin);
  initialise_monitor_handles();
  exit(main());
}
static void fault(void) {
  printf("fault\n");
  exit(3);
}
static void tick(void) { wraps++; }
__attribute__((section(".vectors"), used)) const void *const vectors[16] = {
    &stack_top, (void *)reset, (void *)fault, (void *)fault, (void *)fault, (void *)fault, (void *)fault, 0, 0, 0, 0,
    (void *)fault, (void *)fault, 0, (void *)fault, (void *)tick};

void test_begin(void) {
  outside = (uintptr_t)__builtin_frame_address(0);
  for (volatile uint32_t *p = (volatile uint32_t *)(outside - PAINTED); (uintptr_t)p < outside - 64; p++) {
    *p = PAINT;
  }
  RELOAD = 0xFFFFFF;
  VALUE = 0;
  CONTROL = 7;
}
void test_end(void) {
  const uint32_t value = VALUE, wrapped = wraps;
  CONTROL = 0;
  const volatile uint32_t *p = (const volatile uint32_t *)(outside - PAINTED);
  while (*p == PAINT) {
    p++;
  }
  printf("ticks %llu\nstack %lu\n", (unsigned long long)wrapped * 0x1000000 + (0xFFFFFF - value),
         (unsigned long)(outside - (uintptr_t)p));
}
