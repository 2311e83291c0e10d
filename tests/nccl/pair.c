/* SPDX-License-Identifier: MIT */
#include "tests/nccl/pair.h"

#include <stdlib.h>

#include "util/clock.h"

#define PATIENCE_NS UINT64_C(20000000000)

struct fake fake;

void in_progress(ncclResult_t result) {
        assert_true(result == ncclSuccess || result == ncclInProgress);
}

int ask(ncclComm_t comm) {
        ncclResult_t state;

        assert_int_equal(ncclCommGetAsyncError(comm, &state), ncclSuccess);
        return state;
}

int settled(ncclComm_t comm) {
        uint64_t end_ns = clock_now_ns() + PATIENCE_NS;
        int state;

        do
                state = ask(comm);
        while (state == ncclInProgress && clock_now_ns() < end_ns);
        return state;
}

void pair_new(ncclComm_t comms[2], bool blocking) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        ncclUniqueId id;

        config.blocking = blocking;
        assert_int_equal(ncclGetUniqueId(&id), ncclSuccess);
        assert_int_equal(ncclGroupStart(), ncclSuccess);
        for (int rank = 0; rank < 2; rank++)
                in_progress(ncclCommInitRankConfig(&comms[rank], 2, id, rank, &config));
        in_progress(ncclGroupEnd());
        for (int rank = 0; rank < 2; rank++)
                assert_int_equal(settled(comms[rank]), ncclSuccess);
}

void pair_destroy(ncclComm_t comms[2]) {
        for (int rank = 0; rank < 2; rank++)
                assert_int_equal(ncclCommDestroy(comms[rank]), ncclSuccess);
}

ncclResult_t transfers(ncclComm_t comm, bool sends, int32_t *values, int n) {
        int peer = sends; /* rank 0 sends */
        ncclResult_t result = ncclSuccess;

        if (n > 1)
                assert_int_equal(ncclGroupStart(), ncclSuccess);
        for (int i = 0; i < n; i++)
                result = sends ? ncclSend(&values[i], 1, ncclInt32, peer, comm, NULL)
                               : ncclRecv(&values[i], 1, ncclInt32, peer, comm, NULL);
        return n > 1 ? ncclGroupEnd() : result;
}

void fill(int32_t *values, int n) {
        for (int i = 0; i < n; i++)
                values[i] = i + 1;
}

void assert_filled(const int32_t *values, int n) {
        for (int i = 0; i < n; i++)
                assert_int_equal(values[i], i + 1);
}

void receive_or_send(ncclComm_t comm, bool sends, int32_t *values, int n) {
        in_progress(transfers(comm, sends, values, n));
}

void receive(ncclComm_t comm, int32_t *values, int n) {
        receive_or_send(comm, false, values, n);
}

void await_lines(ncclComm_t comm, uint32_t n) {
        uint64_t end_ns = clock_now_ns() + PATIENCE_NS;

        while (fake_lines(&fake) < n && clock_now_ns() < end_ns)
                (void)ask(comm);
        assert_true(fake_lines(&fake) >= n);
}

int pair_start(void **state) {
        (void)state;
        fake_start(&fake);
        return setenv("RAILMUX_SOCKET", fake.path, 1);
}

int pair_stop(void **state) {
        (void)state;
        fake_stop(&fake); /* the library's session stays until the process ends */
        return 0;
}
