/* SPDX-License-Identifier: MIT */
#pragma once
/* Processes as the whole-system tests see them: start, wait, look into /proc. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PROC_OUTPUT_MAX (1u << 20)

/* $RAILMUX_TIME_SCALE (sanitizer builds are slower), at least 1. Every time bound of the tests is multiplied by it. */
double proc_time_scale(void);
/* $RAILMUX_FULL=1: everything that is otherwise sampled. */
bool proc_full(void);
/* $RAILMUX_SEED or a fresh one; printed once, so that a sampled run can be repeated. */
uint64_t proc_seed(void);
/* The next number of the sequence that *state stands for. */
uint64_t proc_random(uint64_t *state);

/* Starts argv[0] (a path) with stdout and stderr appended to output_path (NULL: inherited). It dies with us. Pid or
 * -errno. */
pid_t proc_start(const char *const argv[], const char *output_path);
/* Waits for our child. 0 and its status; -ETIMEDOUT. */
int proc_wait(pid_t pid, uint32_t timeout_ms, int *ret_status);
/* Waits until any process is gone or a zombie. 0 or -ETIMEDOUT. */
int proc_wait_dead(pid_t pid, uint32_t timeout_ms);
/* Runs a program to its end; output (stdout, zero-terminated, cut at PROC_OUTPUT_MAX - 1) may be NULL. Exit status, 128
 * + signal, or -ETIMEDOUT (then it is killed). */
int proc_run(const char *const argv[], uint32_t timeout_ms, char *output);
/* The same with stderr as part of the output: for questions that may fail. */
int proc_run_quiet(const char *const argv[], uint32_t timeout_ms, char *output);
/* Asks again, in growing intervals, until it is true. */
bool proc_await(bool (*condition)(void *argument), void *argument, uint32_t timeout_ms);
/* Lets the given time pass: only for measurements over an interval. */
void proc_measure_for(uint32_t ms);

void proc_show_fds(pid_t pid, const char *name); /* on stderr */
int proc_fd_count(pid_t pid);                    /* open fds, or -errno */
int proc_memfd_count(pid_t pid);                 /* of which memfds */
long proc_rss_kib(pid_t pid);                    /* resident memory, or -errno */
uint64_t proc_cpu_ns(pid_t pid);                 /* CPU time of all threads so far; 0 if the process is gone */
/* Children of ours, orphans we inherited included, that still run; written to text (for the message of a failing test).
 */
unsigned int proc_children(char *text, size_t text_size);
