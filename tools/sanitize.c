/* rustc's ThreadSanitizer calls these three by a name that gcc's runtime does not know yet. There they are the plain
   functions, which the runtime intercepts. Built without any optimisation that would make them call themselves. */
#include <stddef.h>
#include <string.h>

void *__tsan_memcpy(void *to, const void *from, size_t n) { return memcpy(to, from, n); }
void *__tsan_memmove(void *to, const void *from, size_t n) { return memmove(to, from, n); }
void *__tsan_memset(void *to, int byte, size_t n) { return memset(to, byte, n); }
