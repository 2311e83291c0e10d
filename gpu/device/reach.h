/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Large requests: ranks read their peers' input and write their peers' output where they are.
 *
 * Through staging each byte of a two-shot all_reduce passes between a processor and its L2 ten times, and the few
 * processors that serve requests are what a large one waits for. Here it passes twice: a rank loads its share from all
 * inputs, adds it up, and stores the sum to all outputs. What it takes is clients' memory mapped on their peers' GPUs
 * (table_reach), and two meetings of all ranks:
 *
 *   enter   I am here, this is my memory, and you may (or may not) reach it;
 *   leave   I have read all that I want of your input, and all that I write to your output is there.
 *
 * Both are chunks of packets on the lane, in regions 0 and 1, like any others. A lane meets its like on the other GPUs
 * and no other lane, so it can be put aside and go on at any time, and workers need not agree on anything.
 *
 * Whether memory is mapped everywhere may change at any moment, so all say what they know when they enter, and only if
 * all say yes they reach; else the lane goes through staging, with the same parts, as if nothing had been said. A
 * buffer is mapped on other GPUs before its own GPU is told, so who is told yes finds it. If it does not, the memory
 * was taken away under a request that used it, and the request fails.
 *
 * Chunks are given back when the request is over and its bell has been told: what is stored to other GPUs makes the
 * next fence take two microseconds longer. Addresses are looked up again whenever the lane goes on: no task keeps an
 * address of another GPU, and what has been taken out of the tables is not touched once the worker has acknowledged
 * that. Six lookups that wait for each other take two microseconds, too, so the worker remembers what came of them
 * (far_reach), with all that they depended on: what each rank had entered with, the own request, and the version of the
 * tables. What is remembered is asked for while the others' packets are on their way. What others send is believed only
 * as far as it can do no harm: it names buffers of the session that the rank belongs to, and what is touched lies
 * within them.
 *
 * Failure. Others may be writing to this rank's memory until they have left, or until their executors say that they
 * have stopped. So a task that has entered and cannot be finished is kept, touches nothing any more, and is answered
 * when the communicator has been aborted and all executors have stopped (abort without freeze).
 */
#include "gpu/device/copies.h"

enum reach_stage {
        REACH_BEGIN = 0,
        REACH_ENTERED = 1, /* the others know about this rank's memory */
        REACH_LEFT = 2,    /* this rank has done its share */
        REACH_BROKEN = 3,  /* memory is not there: the communicator will be aborted */
        REACH_BURST = 4,   /* a burst has been posted */
};

enum reach_end {
        REACH_WAITS = 0,
        REACH_DONE = 1,
        REACH_NOT = 2,    /* somebody cannot: through staging */
        REACH_SPARED = 3, /* lane 1 has it done: the bell is to be told, and that is all */
};

#define REACH_WORDS 5u /* packets that a rank enters with */
#define REACH_STEP  8u /* threads that look at one peer's */
/* Units after which the worker looks up: 40 us of them, or 5 where others may be waiting. What was looked up has to be
 * looked up again afterwards, which takes one to two. */
#if TARGET_HOST /* so that it happens */
#define REACH_TURN        100u
#define REACH_TURN_SHARED 50u
#else
#define REACH_TURN        4096u
#define REACH_TURN_SHARED 512u
#endif

struct reach {
        struct worker_shared *s;
        struct counter_cache *c;
        struct task *t;
        uint32_t n, me, lane, thread, spins;
        struct far_reach *far; /* what is remembered of the request, if it is */
        bool known;            /* it is, if all ranks enter with what they entered with then */
        uint64_t in, out;      /* of rank `thread` */
};

/* ---- meetings ---------------------------------------------------------------------------------------------------- */
DEVICE bool reach_room(const struct reach *r, uint32_t region) {
        const uint64_t credit = r->s->rank.peer[r->me] + staging_credit(&r->s->layout, STAGING_PACKET, region, r->lane);
        bool room = true;

        for (uint32_t p = r->thread; p < r->n; p += WARP_THREADS) {
                const uint32_t pushed = r->c->pushed[region][p];

                if (p == r->me || (int32_t)(pushed - r->c->room[region][p]) < (int32_t)STAGING_SLOTS)
                        continue;
                r->c->room[region][p] = word_load((const uint32_t *)credit + p);
                room = room && (int32_t)(pushed - r->c->room[region][p]) < (int32_t)STAGING_SLOTS;
        }
        return warp_all(room);
}

DEVICE struct quad *reach_to(const struct reach *r, uint32_t region, uint32_t p) {
        return (struct quad *)(r->s->rank.peer[p] + staging_chunk(&r->s->layout, STAGING_PACKET, region, r->lane,
                                                                  r->c->pushed[region][p] % STAGING_SLOTS, r->me));
}

DEVICE const struct quad *reach_from(const struct reach *r, uint32_t region, uint32_t p) {
        return (const struct quad *)(r->s->rank.peer[r->me] + staging_chunk(&r->s->layout, STAGING_PACKET, region,
                                                                            r->lane,
                                                                            r->c->taken[region][p] % STAGING_SLOTS, p));
}

DEVICE void reach_pushed(const struct reach *r, uint32_t region) {
        warp_sync();
        for (uint32_t p = r->thread; p < r->n; p += WARP_THREADS)
                if (p != r->me)
                        r->c->pushed[region][p]++;
        warp_sync();
}

DEVICE void reach_taken(const struct reach *r, uint32_t region) {
        warp_sync();
        for (uint32_t p = r->thread; p < r->n; p += WARP_THREADS)
                if (p != r->me)
                        word_store((uint32_t *)(r->s->rank.peer[p] +
                                                staging_credit(&r->s->layout, STAGING_PACKET, region, r->lane)) +
                                           r->me,
                                   ++r->c->taken[region][p]);
        warp_sync();
}

/* What is called, so that nobody's data passes for it where ranks call different things. */
DEVICE uint64_t reach_call(const struct task *t) {
        return (t->call ^ (uint64_t)(t->sequence * 0x9e3779b1u) << 32) * UINT64_C(0x9e3779b97f4a7c15);
}

DEVICE uint64_t reach_word(const struct task *t, uint32_t u) {
        switch (u) {
        case 0:
                return reach_call(t);
        case 1:
                return (uint64_t)t->reaches << 32 | t->in_buffer;
        case 2:
                return t->in_offset;
        case 3:
                return (uint64_t)(t->burst == BURST_BY_COPIES) << 32 | t->out_buffer;
        default:
                return t->out_offset;
        }
}

/* False: no room yet. */
DEVICE bool reach_enter(const struct reach *r) {
        if (!reach_room(r, 0))
                return false;
#if TARGET_AMD
        fence_release_system(); /* what the L2 here still has of the input goes where peers find it */
#endif
        for (uint32_t i = r->thread; i < r->n * REACH_STEP; i += WARP_THREADS) {
                const uint32_t p = i / REACH_STEP, u = i % REACH_STEP;

                if (p != r->me && u < REACH_WORDS)
                        packet_store(reach_to(r, 0, p) + u, reach_word(r->t, u), r->c->pushed[0][p] + 1);
        }
        reach_pushed(r, 0);
        return true;
}

/* ---- what is remembered ------------------------------------------------------------------------------------------ */
DEVICE uint64_t reach_name(const struct reach *r, uint32_t i) {
        const struct task *t = r->t;

        switch (i) {
        case 0:
                return (uint64_t)r->s->w.epoch << 32 | r->s->w.version;
        case 1:
                return t->in;
        case 2:
                return t->out;
        case 3:
                return (uint64_t)t->stride << 32 | t->total;
        default:
                return (uint64_t)t->rank << 32 | t->root << 8 | t->reach;
        }
}

/* Looks for it. */
DEVICE void reach_recall(struct reach *r) {
        const uint32_t mixed = ((uint32_t)(r->t->in >> 4) ^ (uint32_t)(r->t->out >> 4) * 0x85ebca6bu) * 0x9e3779b1u;
        const uint32_t p = r->thread < r->n ? r->thread : 0;
        uint64_t name[REACH_NAME_WORDS];

        r->far = &r->s->w.scratch->reaches[mixed >> 16 & (WORKER_REACHES - 1)];
        UNROLL
        for (uint32_t i = 0; i < REACH_NAME_WORDS; i++)
                name[i] = cell_load(&r->far->name[i]);
        r->in = cell_load(&r->far->in[p]);
        r->out = cell_load(&r->far->out[p]);
        r->known = true;
        UNROLL
        for (uint32_t i = 0; i < REACH_NAME_WORDS; i++)
                r->known = r->known && name[i] == reach_name(r, i);
        r->known = warp_all(r->known);
}

/* What the ranks have entered with now, and what came of it, is remembered. */
DEVICE void reach_remember(const struct reach *r) {
        const struct peer_view *v = &r->s->view;

        warp_sync();
        for (uint32_t p = r->thread; p < r->n; p += WARP_THREADS) {
                cell_store(&r->far->in[p], v->data[p]);
                cell_store(&r->far->out[p], v->to[p]);
        }
        if (r->thread == 0)
                for (uint32_t i = 0; i < REACH_NAME_WORDS; i++)
                        cell_store(&r->far->name[i], reach_name(r, i));
        warp_sync();
}

/* What the others have entered with, into shared memory. False: not all have. *ret_all: all say yes. *ret_differs: a
 * rank that has called something else (roots are not compared elsewhere), n: none. *ret_copies: all would have copy
 * engines move it. If they enter with something else than is remembered, that is forgotten. */
DEVICE bool reach_meet(struct reach *r, bool *ret_all, bool *ret_copies, uint32_t *ret_differs) {
        struct peer_view *v = &r->s->view;
        const uint64_t call = reach_call(r->t);
        bool there = true, yes = r->t->reaches != 0, copies = r->t->burst == BURST_BY_COPIES, same = r->known;
        uint32_t differs = r->n;
        uint64_t who;

        for (uint32_t i = r->thread; i < r->n * REACH_STEP; i += WARP_THREADS) {
                const uint32_t p = i / REACH_STEP, u = i % REACH_STEP;
                const struct quad *from;
                uint32_t looks = 0;
                uint64_t word, before;
                struct quad packet;

                if (p == r->me || u >= REACH_WORDS)
                        continue;
                before = u ? cell_load(&r->far->word[p][u - 1]) : 0;
                from = reach_from(r, 0, p) + u;
                do
                        packet = quad_load(from);
                while (!packet_is(packet, r->c->taken[0][p] + 1) && ++looks < r->spins);
                word = packet_payload(packet);
                there = there && looks < r->spins;
                if (looks < r->spins)
                        flag_acquire(&from->y);
                if (u == 3) { /* (says something of the request, too, and is remembered without) */
                        copies = copies && word >> 32;
                        word = (uint32_t)word;
                }
                same = same && (!u || word == before);
                if (u == 0) {
                        if (looks < r->spins && word != call)
                                differs = p;
                } else if (u == 1) {
                        yes = yes && word >> 32 == 1;
                        v->to_flag[p] = (uint32_t)word;
                } else if (u == 2) {
                        v->data[p] = word;
                } else if (u == 3) {
                        v->from_flag[p] = (uint32_t)word;
                } else if (u == 4) {
                        v->to[p] = word;
                }
        }
        there = warp_all(there);
        *ret_all = warp_all(yes);
        *ret_copies = warp_all(copies);
        who = warp_ballot(differs < r->n);
        *ret_differs = who ? warp_read(differs, first_bit(who)) : r->n;
        r->known = warp_all(same);
        warp_sync();
        return there;
}

/* ---- addresses --------------------------------------------------------------------------------------------------- */
/* [offset, offset + bytes) of a buffer of another GPU's session; 0: it is not there. */
DEVICE uint64_t reach_find(const struct table *table, uint64_t session, uint32_t id, uint64_t offset, uint64_t bytes) {
        const uint32_t start = table_reach_hash(session, id);

        for (uint32_t i = 0; i < TABLE_PROBES; i++) {
                const struct table_reach *b = &table->reach[(start + i) % TABLE_REACH];
                const uint32_t key = word_load(&b->key);
                uint64_t have, address;

                if (!key)
                        break;
                if (key != 2 || word_load(&b->id) != id || cell_load(&b->session) != session)
                        continue;
                have = cell_load(&b->bytes);
                address = cell_load(&b->address) + offset;
                return offset > have || bytes > have - offset || (address & 15) ? 0 : address;
        }
        return 0;
}

/* Where all inputs and outputs are, as looked up. The rank whose memory is not there, n: none. */
DEVICE uint32_t reach_look_up(const struct reach *r) {
        const struct table *table = r->s->w.table;
        const struct table_rank *rank = &table->ranks[r->t->rank];
        const uint32_t mode = r->t->reach;
        const uint64_t in_bytes = mode == REACH_ALL_GATHER ? r->t->stride : r->t->total;
        const uint64_t out_bytes = mode == REACH_REDUCE_SCATTER ? r->t->stride : r->t->total;
        struct peer_view *v = &r->s->view;
        uint32_t lost = r->n;
        uint64_t who;

        if (r->thread == 0) /* not while it is being written */
                cell_store(&r->far->name[0], 0);
        warp_sync();
        for (uint32_t p = r->thread; p < r->n; p += WARP_THREADS) {
                uint64_t in = r->t->in, out = r->t->out;

                if (p != r->me) {
                        cell_store(&r->far->word[p][0], UINT64_C(1) << 32 | v->to_flag[p]); /* all said yes */
                        cell_store(&r->far->word[p][1], v->data[p]);
                        cell_store(&r->far->word[p][2], v->from_flag[p]);
                        cell_store(&r->far->word[p][3], v->to[p]);
                }

                const bool root = p == r->t->root, reads = reach_reads(mode, root), writes = reach_writes(mode, root);

                if (p != r->me) {
                        const uint64_t session = cell_load(&rank->session[p]);

                        in = reads ? reach_find(table, session, v->to_flag[p], v->data[p], in_bytes) : 1;
                        out = writes ? reach_find(table, session, v->from_flag[p], v->to[p], out_bytes) : 1;
                }
                if (((reads && !in) || (writes && !out)) && lost == r->n)
                        lost = p;
                v->data[p] = in;
                v->to[p] = out;
        }
        who = warp_ballot(lost < r->n);
        if (who)
                lost = warp_read(lost, first_bit(who));
        warp_sync();
        return lost;
}

/* The same, remembered or looked up. */
DEVICE uint32_t reach_resolve(const struct reach *r) {
        struct peer_view *v = &r->s->view;
        uint32_t lost;

        if (!r->known) {
                lost = reach_look_up(r);
                if (lost == r->n)
                        reach_remember(r);
                return lost;
        }
#if TARGET_HOST /* one thread for all */
        for (uint32_t p = 0; p < r->n; p++) {
                v->data[p] = cell_load(&r->far->in[p]);
                v->to[p] = cell_load(&r->far->out[p]);
        }
#else
        if (r->thread < r->n) {
                v->data[r->thread] = r->in;
                v->to[r->thread] = r->out;
        }
#endif
        warp_sync();
        return r->n;
}

/* A turn of this rank's share; then the worker looks at what else there is. True: all is done. */
DEVICE bool reach_share(const struct reach *r) {
        const struct worker *w = &r->s->w;
        const uint32_t turn = w->n_rings > 1 || w->n_tasks > 1 ? REACH_TURN_SHARED : REACH_TURN;
        struct reach_units u;
        uint32_t from = r->t->reached, until, share, n;

        reach_units_share(r->t, r->n, r->me, &u);
        share = u.n;
        reach_units_own(r->t, r->n, r->me, &u);
        n = share + u.n;
        until = n - from > turn ? from + turn : n;
        if (r->n == 8)
                reach_move_mode<8>(r->s, r->t, share, from, until);
        else if (r->n == 4)
                reach_move_mode<4>(r->s, r->t, share, from, until);
        else
                reach_move_mode<2>(r->s, r->t, share, from, until);
        warp_sync();
        if (r->thread == 0)
                r->t->reached = until;
        warp_sync();
        return until == n;
}

DEVICE bool reach_leave(const struct reach *r) {
        if (!reach_room(r, 1))
                return false;
        fence_release_system();
        warp_sync();
        for (uint32_t p = r->thread; p < r->n; p += WARP_THREADS)
                if (p != r->me)
                        packet_store(reach_to(r, 1, p), reach_call(r->t), r->c->pushed[1][p] + 1);
        reach_pushed(r, 1);
        return true;
}

/* Have all others left? */
DEVICE bool reach_alone(const struct reach *r) {
        bool alone = true;

        for (uint32_t p = r->thread; p < r->n; p += WARP_THREADS) {
                const struct quad *from = reach_from(r, 1, p);
                uint32_t looks = 0;
                struct quad packet;

                if (p == r->me)
                        continue;
                do
                        packet = quad_load(from);
                while (!packet_is(packet, r->c->taken[1][p] + 1) && ++looks < r->spins);
                if (looks < r->spins)
                        flag_acquire(&from->y);
                /* (What is left of a request that failed is not of this one.) */
                alone = alone && looks < r->spins && packet_payload(packet) == reach_call(r->t);
        }
        return warp_all(alone);
}

/* The bell has been told. Gives the chunks back, and looks for room now that there is time. */
DEVICE void reach_over(struct worker_shared *s, struct counter_cache *c, struct task *t) {
        struct reach r = {s, c, t, s->rank.n_ranks, s->rank.rank, t->lane, warp_thread(), 0, NULL, false, 0, 0};

        reach_taken(&r, 0);
        reach_taken(&r, 1);
        (void)reach_room(&r, 0);
        (void)reach_room(&r, 1);
}

DEVICE void reach_stage(const struct reach *r, uint32_t stage) {
        warp_sync();
        if (r->thread == 0)
                r->t->stage = (uint8_t)stage;
        warp_sync();
}

/* The lane goes through staging. */
DEVICE void reach_not(const struct reach *r) {
        warp_sync();
        if (r->thread == 0) {
                r->t->reach = REACH_NONE;
                r->t->transport = r->t->through;
                r->t->stage = REACH_BEGIN;
                if (r->t->spread != STAGING_DATA_LANES) /* the short way knows nothing else */
                        r->t->quick = QUICK_NONE;
        }
        warp_sync();
}

/* It will not be finished, and others may be reaching this rank's memory: it waits for the communicator's abort. */
DEVICE uint32_t reach_break(const struct reach *r, uint32_t code, uint32_t rank, uint32_t *ret_status) {
        *ret_status = status_of(code, (int32_t)rank);
        reach_stage(r, REACH_BROKEN);
        return REACH_WAITS;
}

/* Works on a lane's task as far as it goes; enum reach_end. If it is done the bell is to be told, and then reach_over()
 * called. *ret_status: RMX_OK, or why the request will fail. */
DEVICE_OUTLINE uint32_t reach_run(struct worker_shared *s, struct counter_cache *c, struct task *t, uint32_t spins,
                                  uint32_t *ret_status) {
        SHARED_POINTER(s);
        SHARED_POINTER(c);
        struct reach r = {s, c, t, s->rank.n_ranks, s->rank.rank, t->lane, warp_thread(), spins, NULL, false, 0, 0};
        uint32_t rank;
        bool all, copies;

        if (t->burst && t->lane != 1) {
                const uint32_t verdict = burst_verdict(s, t);

                if (verdict == BURST_NO)
                        reach_not(&r);
                return verdict == BURST_NO ? REACH_NOT : verdict ? REACH_SPARED : REACH_WAITS;
        }
        if (t->stage == REACH_BEGIN) {
                if (!reach_enter(&r))
                        return REACH_WAITS;
                if (t->burst == BURST_BY_KERNEL && t->reaches)
                        (void)burst_post(s, t); /* or else when all have met */
                reach_stage(&r, REACH_ENTERED);
        }
        if (t->stage == REACH_ENTERED) {
                bool there;

                reach_recall(&r);
                there = reach_meet(&r, &all, &copies, &rank);
                if (rank < r.n)
                        return reach_break(&r, RMX_E_MISMATCH, rank, ret_status);
                if (!there)
                        return REACH_WAITS;
                if (!all) {
                        reach_taken(&r, 0);
                        if (t->burst) {
                                (void)burst_quiet(&s->w, t);
                                burst_tell(s, t, BURST_NO);
                        }
                        reach_not(&r);
                        return REACH_NOT;
                }
                rank = reach_resolve(&r);
                if (rank < r.n)
                        return reach_break(&r, RMX_E_INVALID, rank, ret_status);
                if (t->burst) {
                        if (!copies)
                                copies_not(t);
                        if (t->burst == BURST_BY_COPIES && !copies_post(s, t))
                                return REACH_WAITS;
                        while (t->burst == BURST_BY_KERNEL && (!t->reached || !burst_go(s, t)))
                                if (!burst_post(s, t))
                                        return REACH_WAITS;
                        burst_tell(s, t, BURST_YES);
                        reach_stage(&r, REACH_BURST);
                } else {
                        if (!reach_share(&r) || !reach_leave(&r))
                                return REACH_WAITS;
                        reach_stage(&r, REACH_LEFT);
                }
        }
        if (t->stage == REACH_BURST) {
                if (!burst_ended(s, t, spins) || !reach_leave(&r))
                        return REACH_WAITS;
                reach_stage(&r, REACH_LEFT);
        }
        return t->stage == REACH_LEFT && reach_alone(&r) ? (uint32_t)REACH_DONE : (uint32_t)REACH_WAITS;
}

/* Nothing is moved for the task any more until it is looked at again. */
DEVICE void reach_take_back(const struct worker *w, struct task *t) {
        if (t->stage != REACH_BURST || !(t->burst == BURST_BY_COPIES ? copies_quiet(w, t) : burst_quiet(w, t)))
                return;
        if (warp_thread() == 0)
                t->stage = REACH_ENTERED;
        warp_sync();
}

/* A request is to be answered with `status`. True: not yet, since others may be reaching the rank's memory. Only when
 * the communicator was aborted and all executors have stopped (no more freeze) it is; that a rank has left, or memory
 * is gone, is reported, which leads to that. */
DEVICE bool reach_keeps(const struct worker *w, struct task *t, uint32_t status, bool aborted, bool freeze) {
        const bool tells = !aborted && t->stage != REACH_BROKEN;

        if (!t->stage || (aborted && !freeze))
                return false;
        warp_sync();
        if (tells) {
                report_status(w, t->rank, status);
                if (warp_thread() == 0)
                        t->stage = REACH_BROKEN;
        }
        warp_sync();
        return true;
}
