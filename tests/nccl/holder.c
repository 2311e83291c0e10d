/* SPDX-License-Identifier: MIT */
#include "tests/nccl/holder.h"

static ncclResult_t collectives(struct holder *h, int rank) {
        static const int32_t one = 1;
        ncclResult_t result = ncclGroupStart(), ended;

        for (uint32_t i = 0; i < h->n && !result; i++)
                result = ncclAllReduce(&one, &h->sum[rank], 1, ncclInt32, ncclSum, h->comms[rank], NULL);
        ended = ncclGroupEnd();
        return result ? result : ended;
}

static void *hold(void *userdata) {
        must(!collectives(userdata, 0));
        return NULL;
}

void holder_start(struct holder *h, uint32_t n) {
        uint32_t lines = fake_lines(&fake);

        *h = (struct holder){.n = n};
        pair_new(h->comms, true);
        assert_int_equal(pthread_create(&h->thread, NULL, hold, h), 0);
        (void)fake_line(&fake, lines + n - 1);
}

ncclResult_t holder_release(struct holder *h) {
        return collectives(h, 1);
}

void holder_join(struct holder *h) {
        pthread_join(h->thread, NULL);
        assert_int_equal(h->sum[0], 2);
        pair_destroy(h->comms);
}

void holder_end(struct holder *h) {
        assert_int_equal(holder_release(h), ncclSuccess);
        holder_join(h);
}
