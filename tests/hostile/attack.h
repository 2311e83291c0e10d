/* SPDX-License-Identifier: MIT */
#pragma once
/* One hostile case: a process of its own that does one bad thing and says how it ended. */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "tests/hostile/wire.h"

enum outcome {
        OUTCOME_NONE,
        OUTCOME_ENDED,   /* railmuxd ended the connection */
        OUTCOME_REFUSED, /* an error in an answer or in a completion, and the session goes on */
        OUTCOME_SERVED,  /* it did no harm and was served */
        OUTCOME_BARRED,  /* the kernel did not let it out */
        OUTCOME_KILLED,  /* the client died of its own SIGKILL */
        OUTCOME_LEFT,    /* the client went away in the middle */
        OUTCOME_WRONG,   /* against the law: fails the test */
        OUTCOME_COUNT,
};

#define ATTACK_TEXT_MAX  200u
#define ATTACK_BUFFER    (256u << 10)
#define ATTACK_DIFFERENT "what came is not what the law says"
#define ATTACK_SILENT_MS 20000u

struct attack {
        const char *socket;
        uint32_t number; /* of the case in its kind: tables are gone through in turn */
        uint64_t random; /* state of proc_random */
        struct {
                enum outcome outcome;
                bool own_kill; /* SIGKILL of the process is what the case is about */
                char text[ATTACK_TEXT_MAX];
        } * result; /* shared with the parent */
};

struct attack_kind {
        const char *name;
        unsigned int sampled; /* cases by default; ATTACK_FULL_FACTOR times as many with RAILMUX_FULL=1 */
        enum outcome (*run)(struct attack *attack);
};

/* A number below bound. */
uint32_t attack_draw(struct attack *attack, uint32_t bound);
void attack_fill(struct attack *attack, void *bytes, size_t size);
/* OUTCOME_WRONG with a reason. */
enum outcome attack_wrong(struct attack *attack, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* ENDED if the connection ends, else WRONG. Closes. */
enum outcome attack_expect_end(struct attack *attack, struct wire *wire);
/* Closes; ENDED, or otherwise if the session still serves, or WRONG if it does neither. */
enum outcome attack_expect_sane(struct attack *attack, struct wire *wire, enum outcome otherwise);
/* Never returns. */
void attack_kill_self(struct attack *attack) __attribute__((noreturn));

/* A session with a ring on GPU 0, buffer 1 of ATTACK_BUFFER bytes, and a comm of two ranks, both its own. */
struct rig {
        struct attack *attack;
        struct wire wire;
        struct wire_ring ring;
        uint8_t comm_id[128];
        uint32_t handle[2];
        uint32_t sequence[2]; /* of the last good line */
        float *memory;
};

bool rig_open(struct rig *rig, struct attack *attack);
void rig_close(struct rig *rig);
/* A new comm of two ranks in the rig; its sequences begin anew. */
bool rig_comm(struct rig *rig);
/* A right all_reduce line of this rank, for its next sequence. */
struct ring_request rig_line(struct rig *rig, uint32_t rank);
/* An all_reduce of both ranks with the right sum. */
bool rig_works(struct rig *rig);
/* Ends the comm, after which nothing of it may be left without a completion. */
bool rig_abort(struct rig *rig);

/* Waits until the executor has read all lines so far, and copied their blocks; false if it does not. */
bool rig_read(struct rig *rig);

/* A 64-byte aligned place for an argument block of so many bytes, never 0, anywhere in the argument space. */
uint32_t rig_place(struct rig *rig, size_t bytes);
void *rig_block(struct rig *rig, uint32_t place);
/* A line of this rank with one send or receive, or with a block of n entries. They are no part of its sequence. */
struct ring_request rig_pair_line(struct rig *rig, uint32_t rank, const struct ring_group_entry *entry);
struct ring_request rig_group_line(struct rig *rig, uint32_t rank, uint32_t place, uint32_t n);
/* Rank's send to or receive from `peer`: `count` floats in quarter `quarter` of the memory. */
struct ring_group_entry rig_entry(bool sends, uint32_t peer, uint32_t sequence, uint32_t quarter, uint64_t count);

/* Lines in flight, and the codes that came back. */
#define RIG_LINES_MAX  64u
#define RIG_CODE(code) (UINT64_C(1) << (code))
struct rig_lines {
        uint32_t n, n_done;
        uint32_t sequence[RIG_LINES_MAX];
        uint32_t status[RIG_LINES_MAX];
        bool done[RIG_LINES_MAX];
};
bool rig_put(struct rig *rig, struct rig_lines *lines, const struct ring_request *line);
/* Takes what is completed within the time from one completion to the next; true: all are. */
bool rig_take(struct rig *rig, struct rig_lines *lines, uint32_t timeout_ms);
/* Takes all, ending the comm for it if some take long. OUTCOME_SERVED: all well; REFUSED: with others of the allowed
 * codes (RIG_CODE); else WRONG. */
enum outcome rig_settle(struct rig *rig, struct rig_lines *lines, uint64_t allowed);
/* Takes all, which must have this code, and this rank in their status. */
enum outcome rig_expect(struct rig *rig, struct rig_lines *lines, uint32_t code, int32_t rank);

extern const struct attack_kind attacks_frame[], attacks_descriptor[], attacks_line[], attacks_block[], attacks_pair[],
        attacks_memory[], attacks_flood[], attacks_comm[], attacks_life[],
        attacks_kill[]; /* each ends with a NULL name */
