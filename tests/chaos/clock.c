/* A wrong clock on the wall: shifts CLOCK_REALTIME by CHAOS_CLOCK_OFFSET seconds, and leaves alone what measures durations.
 * libfaketime shifts CLOCK_MONOTONIC too, which the C library's own waits do not follow: every timed wait would hang. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long offset(void) {
    static long seconds;
    static int known;
    if (!known) {
        const char *text = getenv("CHAOS_CLOCK_OFFSET");
        seconds = text ? atol(text) : 0;
        known = 1;
    }
    return seconds;
}

int clock_gettime(clockid_t id, struct timespec *at) {
    int failed = (int)syscall(SYS_clock_gettime, id, at);
    if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) at->tv_sec += offset();
    return failed;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    int failed = (int)syscall(SYS_gettimeofday, at, zone);
    if (!failed && at) at->tv_sec += offset();
    return failed;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
