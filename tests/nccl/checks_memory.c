/* SPDX-License-Identifier: MIT */
/* Memory of the library, registration, windows. */
#include <stdlib.h>
#include <string.h>

#include "tests/nccl/checks.h"

#define BYTES (1u << 20)
#define COUNT (BYTES / 4)

/* What a rank puts in: another number at each place, from each rank, and each time. */
static uint32_t number_of(uint32_t rank, uint32_t turn, uint32_t i) {
        return (rank + 1) * 1000003 + turn * 7919 + i;
}

static bool fill(struct team *team, void *memory, uint32_t turn) {
        uint32_t *numbers = malloc(BYTES);
        bool good;

        for (uint32_t i = 0; numbers && i < COUNT; i++)
                numbers[i] = number_of(team->member[0].rank, turn, i);
        good = team_expect(team, numbers && memory_write(memory, numbers, BYTES) == 0, "the memory cannot be written");
        free(numbers);
        return good;
}

/* Is it the sum of what the first n ranks have put in? If it is not, all the rest can be seen nevertheless. */
static void verify(struct team *team, const void *memory, uint32_t n, uint32_t turn) {
        uint32_t *numbers = malloc(BYTES), wrong = 0, first = 0;
        bool good = team_expect(team, numbers && memory_read(numbers, memory, BYTES) == 0, "the memory cannot be read");

        for (uint32_t i = COUNT; good && i-- > 0;) {
                uint32_t sum = 0;

                for (uint32_t rank = 0; rank < n; rank++)
                        sum += number_of(rank, turn, i);
                wrong += numbers[i] != sum;
                first = numbers[i] != sum ? i : first;
        }
        free(numbers);
        team_expect(team, good && wrong == 0, "%u of %u numbers are wrong; the first is number %u", wrong, COUNT,
                    first);
}

/* Rank 0 gives what it has to all. */
static bool spread(struct team *team, void *memory, uint32_t turn) {
        struct member *m = &team->member[0];

        if (!fill(team, memory, turn) ||
            !team_need(team, team->api->Broadcast(memory, memory, BYTES, NCCL_UINT8, 0, m->comm, m->stream),
                       "ncclBroadcast") ||
            !team_wait(team))
                return false;
        verify(team, memory, 1, turn);
        return true;
}

static void run_alloc(struct team *team) {
        const struct nccl_api *api = team->api;
        void *memory[8] = {0}, *huge = NULL;

        team_case(team, "ncclMemAlloc");
        if (!team_comms_new(team))
                return;
        for (uint32_t i = 0; i < 8; i++) {
                if (!team_need(team, api->MemAlloc(&memory[i], 1 + i * 4097), "ncclMemAlloc"))
                        return;
                team_expect(team, memory[i] && (uintptr_t)memory[i] % 256 == 0, "its address is %p", memory[i]);
        }
        if (team->options->memory != MEMORY_DEVICE)
                for (uint32_t i = 0; i < 8; i++)
                        memset(memory[i], 0xff, 1 + i * 4097);
        team_case(team, "ncclMemFree");
        for (uint32_t i = 8; i-- > 0;)
                team_result(team, api->MemFree(memory[i]), NCCL_SUCCESS, "ncclMemFree");
        team_case(team, "ncclMemFree of nothing");
        team_result(team, api->MemFree(NULL), NCCL_SUCCESS, "ncclMemFree(NULL)");
        team_case(team, "more than there is");
        team_expect(team, api->MemAlloc(&huge, SIZE_MAX / 4) != NCCL_SUCCESS, "it was given");
        team_case(team, "without a place for it");
        team_expect(team, api->MemAlloc(NULL, 64) != NCCL_SUCCESS, "it was given");
        team_case(team, "the communicator after all that");
        check_team_works(team, 1);
        team_comms_free(team);
}

/* Memory may come before the first communicator, and go after the last. */
static void run_alloc_first(struct team *team) {
        void *memory = NULL;

        team_case(team, "before any communicator");
        if (!team_need(team, team->api->MemAlloc(&memory, 4096), "ncclMemAlloc") || !team_comms_new(team))
                return;
        if (team->options->memory != MEMORY_DEVICE)
                memset(memory, 1, 4096);
        check_team_works(team, 5);
        if (!team_comms_free(team))
                return;
        team_case(team, "freed after the last one");
        team_result(team, team->api->MemFree(memory), NCCL_SUCCESS, "ncclMemFree");
}

static void run_register(struct team *team) {
        const struct nccl_api *api = team->api;
        struct member *m = &team->member[0];
        void *memory = NULL, *whole = NULL, *part = NULL;
        int result;

        team_case(team, "ncclCommRegister");
        if (!team_comms_new(team) || !team_expect(team, memory_new(BYTES, &memory) == 0, "no memory") ||
            !team_need(team, api->CommRegister(m->comm, memory, BYTES, &whole), "ncclCommRegister"))
                return;
        team_case(team, "a part of it once more");
        result = api->CommRegister(m->comm, (char *)memory + 4096, 8192, &part);
        team_result(team, result, NCCL_SUCCESS, "ncclCommRegister");
        team_case(team, "calls on registered memory");
        if (!spread(team, memory, 1))
                return;
        team_case(team, "ncclCommDeregister");
        if (result == NCCL_SUCCESS)
                team_result(team, api->CommDeregister(m->comm, part), NCCL_SUCCESS, "ncclCommDeregister of the part");
        team_result(team, api->CommDeregister(m->comm, whole), NCCL_SUCCESS, "ncclCommDeregister");
        team_case(team, "a call on it after that");
        if (!spread(team, memory, 2))
                return;
        team_case(team, "wrong arguments");
        team_result(team, api->CommRegister(NULL, memory, BYTES, &whole), NCCL_INVALID_ARGUMENT,
                    "ncclCommRegister with no communicator");
        team_result(team, api->CommDeregister(NULL, NULL), NCCL_INVALID_ARGUMENT,
                    "ncclCommDeregister with no communicator");
        team_case(team, "the communicator after all that");
        check_team_works(team, 2);
        memory_free(memory);
        team_comms_free(team);
}

/* Left registered when the communicator goes: as frameworks that exit do. */
static void run_register_left(struct team *team) {
        void *memory = NULL, *handle = NULL;

        team_case(team, "registered at the communicator's end");
        if (!team_comms_new(team) || !team_expect(team, memory_new(BYTES, &memory) == 0, "no memory") ||
            !team_need(team, team->api->CommRegister(team->member[0].comm, memory, BYTES, &handle), "ncclCommRegister"))
                return;
        check_team_works(team, 4);
        if (team_comms_free(team))
                memory_free(memory);
}

/* Collective, of memory that the library likes best; a library without windows gives none, and no error. */
static void run_window(struct team *team) {
        const struct nccl_api *api = team->api;
        struct member *m = &team->member[0];
        void *memory = NULL, *window = (void *)1, *user = NULL;

        team_case(team, "ncclCommWindowRegister");
        if (!team_comms_new(team) || !team_need(team, api->MemAlloc(&memory, BYTES), "ncclMemAlloc") ||
            !team_need(team, api->CommWindowRegister(m->comm, memory, BYTES, &window, 1), "ncclCommWindowRegister"))
                return;
        team_expect(team, window != (void *)1, "the window was not written");
        team_case(team, "calls in a window");
        if (!fill(team, memory, 3) ||
            !team_need(team, api->AllReduce(memory, memory, COUNT, NCCL_INT32, NCCL_SUM, m->comm, m->stream),
                       "ncclAllReduce") ||
            !team_wait(team))
                return;
        verify(team, memory, team->n_ranks, 3);
        if (window && api->WinGetUserPtr) {
                team_case(team, "ncclWinGetUserPtr");
                team_result(team, api->WinGetUserPtr(m->comm, window, &user), NCCL_SUCCESS, "ncclWinGetUserPtr");
                team_expect(team, user == memory, "it is %p, not %p", user, memory);
        }
        team_case(team, "ncclCommWindowDeregister");
        team_result(team, api->CommWindowDeregister(m->comm, window), NCCL_SUCCESS, "ncclCommWindowDeregister");
        team_case(team, "the communicator after that");
        check_team_works(team, 2);
        team_result(team, api->MemFree(memory), NCCL_SUCCESS, "ncclMemFree");
        team_comms_free(team);
}

const struct check checks_memory[] = {
        {"memory: alloc", 2, IN_ALL_WAYS, run_alloc},
        {"memory: alloc first", 2, IN_PROCESSES | IN_THREADS, run_alloc_first},
        {"memory: register", 2, IN_PROCESSES | IN_THREADS, run_register},
        {"memory: left registered", 2, IN_PROCESSES | IN_THREADS, run_register_left},
        {"memory: window", 2, IN_PROCESSES | IN_THREADS, run_window},
        {0},
};
