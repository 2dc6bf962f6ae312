/* One comparison of the same tokens of the same type: what no tree can do without. */
#include <stddef.h>
#include <string.h>
#include <time.h>

/* Nanoseconds per pair of `count` pairs of `bytes` bytes, all pairs `rounds` times. */
double compare_ns(const void *const *left, const void *const *right, size_t count, size_t bytes, size_t rounds)
{
    struct timespec start, stop;
    volatile int differ = 0;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (size_t round = 0; round < rounds; round++)
        for (size_t pair = 0; pair < count; pair++) {
            differ |= memcmp(left[pair], right[pair], bytes);
            __asm__ volatile("" ::: "memory");
        }
    clock_gettime(CLOCK_MONOTONIC, &stop);
    return ((stop.tv_sec - start.tv_sec) * 1e9 + (stop.tv_nsec - start.tv_nsec)) / (double)(count * rounds);
}
