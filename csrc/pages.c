/* Large results are written to memory that the kernel has just handed out: one page fault for every
 * 4 KiB, which takes longer than the rotation. Huge pages make that one for every 2 MiB. */
#define _DEFAULT_SOURCE
#include "whorl.h"

#if defined(__linux__)
#include <sys/mman.h>

int64_t whorl_prefer_huge_pages(void *memory, int64_t bytes) {
    const uintptr_t page = 4096;
    const uintptr_t begin = ((uintptr_t)memory + page - 1) & ~(page - 1);
    const uintptr_t end = ((uintptr_t)memory + (uintptr_t)bytes) & ~(page - 1);
    if (bytes < 0 || begin >= end) return WHORL_BAD_JOB;
    return madvise((void *)begin, end - begin, MADV_HUGEPAGE) ? WHORL_BAD_JOB : WHORL_OK;
}
#else
int64_t whorl_prefer_huge_pages(void *memory, int64_t bytes) {
    (void)memory;
    (void)bytes;
    return WHORL_OK;
}
#endif
