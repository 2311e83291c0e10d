/* SPDX-License-Identifier: MIT */
#include <dirent.h>
#include <string.h>

#include "tests/client/crew.h"

struct job {
        struct crew *crew;
        uint32_t rank;
        int (*function)(struct crew *crew, uint32_t rank);
};

static void *job_main(void *userdata) {
        struct job *job = userdata;

        job->crew->result[job->rank] = job->function(job->crew, job->rank);
        return NULL;
}

void crew_run(struct crew *crew, int (*function)(struct crew *crew, uint32_t rank)) {
        struct job jobs[FAKE_RANKS_MAX];
        pthread_t threads[FAKE_RANKS_MAX];

        for (uint32_t i = 0; i < crew->n; i++) {
                jobs[i] = (struct job){.crew = crew, .rank = i, .function = function};
                must(!pthread_create(&threads[i], NULL, job_main, &jobs[i]));
        }
        for (uint32_t i = 0; i < crew->n; i++)
                pthread_join(threads[i], NULL);
}

static int join(struct crew *crew, uint32_t rank) {
        struct rmx_comm_options options = {.size = sizeof(options), .gpu = 0};

        return rmx_comm_create(crew->session, &crew->id, crew->n, rank, &options, &crew->comm[rank]);
}

static void crew_join(struct crew *crew) {
        crew->session = fake_session(&crew->fake);
        assert_int_equal(rmx_get_id(crew->session, &crew->id), RMX_OK);
        crew_run(crew, join);
        for (uint32_t i = 0; i < crew->n; i++)
                assert_int_equal(crew->result[i], RMX_OK);
}

void crew_start(struct crew *crew, uint32_t n, uint32_t depth) {
        crew_start_with(crew, n, depth, RING_ARGUMENT_BYTES_DEFAULT);
}

void crew_start_with(struct crew *crew, uint32_t n, uint32_t depth, uint32_t argument_bytes) {
        memset(crew, 0, sizeof(*crew));
        crew->n = n;
        fake_start(&crew->fake);
        crew->fake.depth = depth;
        crew->fake.argument_bytes = argument_bytes;
        crew_join(crew);
}

void crew_start_nodes(struct crew *crew, uint32_t n, uint32_t depth) {
        memset(crew, 0, sizeof(*crew));
        crew->n = n;
        fake_start(&crew->fake);
        crew->fake.depth = depth;
        crew->fake.argument_bytes = RING_ARGUMENT_BYTES_DEFAULT;
        for (uint32_t rank = 0; rank < n; rank++)
                crew->fake.node[rank] = (uint8_t)rank;
        crew_join(crew);
}

static void start_gpus(struct crew *crew, uint32_t n, bool no_latch) {
        memset(crew, 0, sizeof(*crew));
        crew->n = n;
        fake_start(&crew->fake);
        crew->fake.backend = "hip";
        crew->fake.no_latch = no_latch;
        crew_join(crew);
}

void crew_start_gpus(struct crew *crew, uint32_t n) {
        start_gpus(crew, n, false);
}

void crew_start_gpus_without_latch(struct crew *crew, uint32_t n) {
        start_gpus(crew, n, true);
}

void crew_stop(struct crew *crew) {
        for (uint32_t i = 0; i < crew->n; i++)
                (void)rmx_comm_destroy(crew->comm[i]);
        rmx_session_close(crew->session);
        fake_stop(&crew->fake);
}

unsigned int count_fds(void) {
        DIR *directory = opendir("/proc/self/fd");
        unsigned int n = 0;

        must(directory);
        while (readdir(directory))
                n++;
        closedir(directory);
        return n;
}

bool thread_sleeps(pid_t id) {
        char path[64], line[256] = "";
        const char *state;
        FILE *file;

        snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)id);
        file = fopen(path, "re");
        if (!file)
                return false;
        (void)!fgets(line, sizeof(line), file);
        fclose(file);
        state = strrchr(line, ')'); /* the name before it may be anything */
        return state && state[1] == ' ' && state[2] == 'S';
}
