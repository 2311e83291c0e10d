/* SPDX-License-Identifier: MIT */
/*
 * The part of a communicator that ends here while it is made takes its hold of the daemon that gathers it along. When
 * that one is away it would never hear of the end, and ranks on other nodes would wait for ever; when it comes back as
 * another process it does not even know that there was such a part. So it is dialled for a while longer, and told of a
 * rank and then of its failure.
 *
 * Whom to dial is said by ids, which clients hand in, and nobody is charged for this. So a tenant has only so many of
 * them, and then its oldest one goes.
 */
#include "daemon/last_word.h"

#include "util/clock.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

static void word_drop(struct last_words *words, struct last_word *word) {
        DL_DELETE(words->first, word);
        peer_release(word->peer);
        free(word);
}

static void words_arm(struct last_words *words) {
        uint64_t now_ns = clock_now_ns(), rest_us;
        struct timeval time;

        if (!words->first)
                return;
        rest_us = words->first->until_ns > now_ns ? (words->first->until_ns - now_ns) / 1000 + 1 : 1;
        time = (struct timeval){.tv_sec = (time_t)(rest_us / 1000000), .tv_usec = (suseconds_t)(rest_us % 1000000)};
        if (event_add(words->timer, &time) < 0)
                word_drop(words, words->first); /* rather too early than never */
}

static void words_time(evutil_socket_t fd, short what, void *data) {
        struct last_words *words = data;
        uint64_t now_ns = clock_now_ns();

        (void)fd;
        (void)what;
        while (words->first && words->first->until_ns <= now_ns)
                word_drop(words, words->first);
        words_arm(words);
}

int last_words_init(struct last_words *words, struct event_base *base) {
        words->timer = evtimer_new(base, words_time, words);
        return words->timer ? 0 : -ENOMEM;
}

void last_words_deinit(struct last_words *words) {
        while (words->first)
                word_drop(words, words->first);
        if (words->timer)
                event_free(words->timer);
        words->timer = NULL;
}

/* The one that makes room: of the same id, else the oldest of the tenant or of all if these are too many. NULL: none.
 */
static struct last_word *word_older(const struct last_words *words, const struct peer *peer,
                                    const Railmux__Peer__Join *join) {
        struct last_word *word, *first = NULL;
        unsigned int n = 0, n_tenant = 0;

        DL_FOREACH(words->first, word) {
                const bool same = strcmp(word->tenant, join->tenant) == 0;

                if (same && word->peer == peer && memcmp(word->id, join->comm_id.data, COMM_ID_BYTES) == 0)
                        return word;
                if (same && n_tenant++ == 0)
                        first = word;
                n++;
        }
        if (n_tenant >= LAST_WORDS_TENANT)
                return first;
        return n >= LAST_WORDS_MAX ? words->first : NULL;
}

void last_word_keep(struct last_words *words, struct peer *peer, const Railmux__Peer__Join *join, uint32_t code,
                    const char *text) {
        struct last_word *older, *word = calloc(1, sizeof(*word));

        if (!word)
                return;  /* those who wait for it wait until their own time is up */
        peer_hold(peer); /* before another hold of it goes */
        older = word_older(words, peer, join);
        if (older)
                word_drop(words, older);
        word->peer = peer;
        word->until_ns = clock_now_ns() + UINT64_C(1000000000) * LAST_WORD_SECONDS;
        word->attempt = join->attempt;
        snprintf(word->tenant, sizeof(word->tenant), "%s", join->tenant);
        memcpy(word->id, join->comm_id.data, COMM_ID_BYTES);
        word->rank = join->rank;
        word->n_ranks = join->n_ranks;
        word->gpu = join->gpu;
        word->device = join->device;
        word->code = code;
        snprintf(word->text, sizeof(word->text), "%s", text);
        DL_APPEND(words->first, word);
        if (!event_pending(words->timer, EV_TIMEOUT, NULL))
                words_arm(words);
}

static int word_say(struct last_word *word) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__JoinFailed failed = RAILMUX__PEER__JOIN_FAILED__INIT;
        Railmux__Peer__Join join = RAILMUX__PEER__JOIN__INIT;
        int r;

        join.comm_id.data = failed.comm_id.data = word->id;
        join.comm_id.len = failed.comm_id.len = COMM_ID_BYTES;
        join.rank = failed.rank = word->rank;
        join.attempt = failed.attempt = word->attempt;
        join.tenant = word->tenant;
        join.n_ranks = word->n_ranks;
        join.gpu = word->gpu;
        join.device = word->device;
        failed.code = word->code;
        failed.text = word->text;
        message.body_case = RAILMUX__PEER__MESSAGE__BODY_JOIN;
        message.join = &join;
        r = peer_send(word->peer, &message);
        if (r)
                return r;
        message.body_case = RAILMUX__PEER__MESSAGE__BODY_JOIN_FAILED;
        message.join_failed = &failed;
        return peer_send(word->peer, &message);
}

void last_words_say(struct last_words *words, struct peer *peer) {
        struct last_word *word, *next;

        DL_FOREACH_SAFE(words->first, word, next) {
                if (word->peer != peer)
                        continue;
                if (word_say(word))
                        peer_drop(peer, "out of memory"); /* then it hears that this node is lost */
                word_drop(words, word);
        }
}

void last_words_merged(struct last_words *words, const struct peer *peer, struct peer *into) {
        struct last_word *word;

        DL_FOREACH(words->first, word) {
                if (word->peer == peer)
                        word->peer = into;
        }
}
