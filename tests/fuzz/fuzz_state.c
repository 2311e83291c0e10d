/* SPDX-License-Identifier: MIT */
/*
 * Any state memfd and any stored descriptors, as a predecessor or an older version may have left them, and then clients
 * that say anything on the sessions that were adopted.
 *
 * The input is a list of records with small numbers, so that they refer to each other, of changed bytes anywhere in the
 * memfd, of descriptors under the names that the records ask for, and of packets. A whole manager starts from it, turns
 * its loop and is freed. It must not fail to start because of the state, no charge may be left at a tenant (an
 * assertion of its own), and every descriptor is closed in the end.
 */
#undef NDEBUG /* the asserts are the test */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/comm_id.h"
#include "daemon/config.h"
#include "daemon/manager.h"
#include "daemon/options.h"
#include "daemon/state.h"
#include "ring/ring.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/memfd.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FIRST_FD  3 /* where a service manager puts them */
#define FDS_MAX   24u
#define SLOTS     32u
#define PACKETS   16u
#define SETTLE_NS UINT64_C(5000000000)

static const uint8_t *input, *input_end;
static char directory[] = "/tmp/railmux-fuzz-XXXXXX", client_path[64], control_path[64];

static struct {
        uint8_t *map;
        int fds[FDS_MAX];
        char names[FDS_MAX * 24];
        unsigned int n_fds;
        int peers[FDS_MAX]; /* the clients' ends of adopted sockets */
        unsigned int n_peers;
        unsigned int idle_fds;
        uint8_t comm_id[COMM_ID_BYTES];
} fuzz;

static uint32_t take(unsigned int bytes) {
        uint32_t value = 0;

        while (bytes-- && input < input_end)
                value = value << 8 | *input++;
        return value;
}

/* Mostly a small number, seldom any. */
static uint32_t take_number(uint32_t bound) {
        uint32_t value = take(1);

        return value < 250 ? value % bound : take(4);
}

static void remove_directory(void) {
        unlink(client_path);
        unlink(control_path);
        rmdir(directory);
}

static unsigned int count_fds(void) {
        unsigned int n = 0;
        DIR *dir = opendir("/proc/self/fd");

        assert(dir);
        while (readdir(dir))
                n++;
        closedir(dir);
        return n;
}

static void start_once(void) {
        if (client_path[0])
                return;
        assert(mkdtemp(directory));
        snprintf(client_path, sizeof(client_path), "%s/client", directory);
        snprintf(control_path, sizeof(control_path), "%s/control", directory);
        atexit(remove_directory);
        unsetenv("NOTIFY_SOCKET");
        assert(comm_id_create(&(const struct comm_id_maker){.key = (const uint8_t[COMM_ID_KEY_BYTES]){0},
                                                            .node = (const uint8_t[COMM_ID_NODE_BYTES]){0},
                                                            .address = ""},
                              "default", fuzz.comm_id) == 0);
        log_init("fuzz_state", LOG_LEVEL_ERROR);
        for (int fd = FIRST_FD; fd < FIRST_FD + (int)FDS_MAX; fd++) /* nobody else shall get these */
                if (fcntl(fd, F_GETFD) < 0)
                        assert(dup2(STDERR_FILENO, fd) == fd);
}

static void record_fill(struct state_record *record) {
        record->kind = take_number(STATE_KIND_COUNT);
        switch (record->kind) {
        case STATE_SESSION:
                record->session.session = take_number(4);
                record->session.pid = (uint32_t)getpid();
                record->session.version = take_number(3);
                atomic_init(&record->session.next_handle, take_number(8));
                memset(record->session.name, (int)take(1), sizeof(record->session.name));
                memset(record->session.tenant, (int)take(1), sizeof(record->session.tenant));
                break;
        case STATE_RING:
                record->ring.session = take_number(4);
                record->ring.gpu = take_number(9);
                record->ring.depth = take(1) % 4 ? RING_DEPTH_DEFAULT : take_number(5000);
                record->ring.argument_bytes = take(1) % 4 ? RING_ARGUMENT_BYTES_DEFAULT : take(4);
                break;
        case STATE_BUFFER:
                record->buffer.session = take_number(4);
                record->buffer.buffer = take_number(4);
                record->buffer.bytes = take(1) % 4 ? 4096 : (uint64_t)take(4) << take(1) % 32;
                break;
        case STATE_COMM:
                record->comm.comm = take_number(4);
                record->comm.parent = take_number(4);
                record->comm.n_ranks = take_number(5);
                record->comm.split_number = take_number(4);
                record->comm.n_choices = take_number(4);
                record->comm.by_id = take(1) & 1;
                record->comm.part_bytes = take(1) % 4 ? 65536 : take(4);
                record->comm.slots = take(1) % 4 ? 4 : take(4);
                record->comm.ring_depth = take(1) % 4 ? RING_DEPTH_DEFAULT : take(4);
                atomic_init(&record->comm.status, take_number(20));
                atomic_init(&record->comm.splits_done, (uint64_t)take_number(4) << 32 | take_number(8));
                atomic_init(&record->comm.splits_failed, take(1));
                record->comm.n_nodes = take_number(4);
                memset(record->comm.id, (int)take(1) % 3, sizeof(record->comm.id));
                memset(record->comm.name, (int)take(1), sizeof(record->comm.name));
                memset(record->comm.tenant, (int)take(1), sizeof(record->comm.tenant));
                atomic_init(&record->comm.stand, (uint64_t)(take(1) & 1) << 32 | take_number(9));
                break;
        case STATE_MEMBER:
                record->member.comm = take_number(4);
                record->member.session = take_number(4);
                record->member.rank = take_number(5);
                record->member.handle = take_number(8);
                record->member.gpu = take_number(9);
                record->member.parent_rank = take_number(5);
                record->member.pid = (uint32_t)getpid();
                atomic_init(&record->member.leave, (uint64_t)(take(1) & 3) << 32 | take_number(9));
                break;
        case STATE_CHOICE:
                record->choice.comm = take_number(4);
                record->choice.first = take_number(4);
                record->choice.n = take_number(5);
                for (unsigned int i = 0; i < 4; i++) {
                        record->choice.choice[i].max_bytes = (uint64_t)take(2) << 8;
                        record->choice.choice[i].operation = take_number(14);
                        record->choice.choice[i].algorithm = take_number(6);
                }
                break;
        case STATE_EXECUTOR:
                atomic_init(&record->executor.instance, take_number(4));
                snprintf(record->executor.name, sizeof(record->executor.name), "%s", take(1) & 1 ? "host" : "other");
                atomic_init(&record->executor.leaving, take_number(4));
                break;
        default:
                break;
        }
        atomic_init(&record->valid, take(1) == 1 ? take(4) : STATE_VALID);
}

/* Hands over what `fd` is, under a name. */
static void store(int fd, const char *name) {
        size_t n = strlen(fuzz.names);

        assert(fd >= 0);
        if (fuzz.n_fds == FDS_MAX) {
                close(fd);
                return;
        }
        snprintf(fuzz.names + n, sizeof(fuzz.names) - n, "%s%s", n ? ":" : "", name);
        fuzz.fds[fuzz.n_fds++] = fd;
}

static int any_fd(uint32_t kind) {
        int pair[2], fd = -1;

        switch (kind % 6) {
        case 0:
                assert(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
                if (fuzz.n_peers < FDS_MAX && take(1) % 8 != 7)
                        fuzz.peers[fuzz.n_peers++] = pair[0];
                else
                        close(pair[0]);
                return pair[1];
        case 1:
                assert(memfd_new("fuzz", 4096, &fd) == 0);
                return fd;
        case 2:
                assert(memfd_new("fuzz", 1 << 20, &fd) == 0);
                return fd;
        case 3:
                return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        case 4:
                return memfd_create("fuzz", MFD_CLOEXEC); /* empty, not sealed */
        default:
                return open("/dev/null", O_RDONLY | O_CLOEXEC);
        }
}

static void store_any(void) {
        uint32_t session = take_number(4), second = take_number(9), odd = take(1);
        char name[24];

        switch (take(1) % 6) {
        case 0:
                snprintf(name, sizeof(name), "s%u", session);
                store(any_fd(odd < 200 ? 0 : odd), name);
                break;
        case 1:
                for (const char *part = "cxe"; *part; part++) {
                        snprintf(name, sizeof(name), "r%u.%u.%c", session, second, *part);
                        if (take(1) != 1)
                                store(any_fd(odd >= 200 ? odd : *part == 'e' ? 3 : 2), name);
                }
                break;
        case 2:
                snprintf(name, sizeof(name), "b%u.%u", session, second);
                store(any_fd(odd < 200 ? 1 : odd), name);
                break;
        case 3:
                snprintf(name, sizeof(name), "m%u", session);
                store(any_fd(odd < 200 ? 1 : odd), name);
                break;
        case 4:
                snprintf(name, sizeof(name), "%s", (const char *[]){"client", "control", "executor", "x"}[session % 4]);
                store(any_fd(odd), name);
                break;
        default:
                snprintf(name, sizeof(name), "s%u.%u", session, second);
                store(any_fd(odd), name);
                break;
        }
}

static struct state_record *next_record(unsigned int *n) {
        struct state_record *record = (void *)(fuzz.map + STATE_HEADER_BYTES + *n % SLOTS * STATE_RECORD_BYTES);

        ++*n;
        atomic_init(&record->valid, STATE_VALID);
        return record;
}

/* Two sessions with a ring, a buffer and a comm, as a predecessor leaves them; what `without` says is missing. */
static unsigned int make_world(uint32_t without) {
        struct state_record *record;
        unsigned int n = 0;

        for (uint32_t session = 1; session <= 2; session++) {
                if (!(without & 1)) {
                        record = next_record(&n);
                        record->kind = STATE_SESSION;
                        record->session.session = session;
                        record->session.pid = (uint32_t)getpid();
                        record->session.version = 1;
                        atomic_init(&record->session.next_handle, 2);
                        store(any_fd(0), session == 1 ? "s1" : "s2");
                }
                if (!(without & 2)) {
                        record = next_record(&n);
                        record->kind = STATE_MEMBER;
                        record->member.comm = 1;
                        record->member.session = session;
                        record->member.rank = session - 1;
                        record->member.handle = 1;
                }
        }
        if (!(without & 4)) {
                record = next_record(&n);
                record->kind = STATE_RING;
                record->ring.session = 1;
                record->ring.depth = RING_DEPTH_DEFAULT;
                record->ring.argument_bytes = RING_ARGUMENT_BYTES_DEFAULT;
                store(any_fd(2), "r1.0.c");
                store(any_fd(2), "r1.0.x");
                store(any_fd(3), "r1.0.e");
        }
        if (!(without & 8)) {
                record = next_record(&n);
                record->kind = STATE_BUFFER;
                record->buffer.session = 1;
                record->buffer.buffer = 1;
                record->buffer.bytes = 4096;
                store(any_fd(1), "b1.1");
        }
        if (!(without & 16)) {
                record = next_record(&n);
                record->kind = STATE_CHOICE;
                record->choice.comm = 1;
                record->choice.n = 1;
                record->choice.choice[0].max_bytes = UINT64_MAX;
                record->choice.choice[0].operation = RING_OP_ALL_REDUCE;
        }
        if (!(without & 32)) {
                record = next_record(&n);
                record->kind = STATE_COMM;
                record->comm.comm = 1;
                record->comm.n_ranks = 2;
                record->comm.n_choices = without & 16 ? 0 : 1;
                record->comm.part_bytes = 65536;
                record->comm.slots = 4;
                record->comm.ring_depth = RING_DEPTH_DEFAULT;
                record->comm.by_id = 1;
                snprintf(record->comm.tenant, sizeof(record->comm.tenant), "default");
                store(any_fd(1), "m1");
        }
        return n;
}

static void make_state(void) {
        size_t bytes = STATE_HEADER_BYTES + SLOTS * STATE_RECORD_BYTES;
        struct state_header *header;
        int fd = memfd_create("fuzz-state", MFD_CLOEXEC);
        uint32_t without = take(1), n_records = take(1) % SLOTS, n_fds = take(1) % 12, n_edits;
        unsigned int n;

        assert(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
        fuzz.map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        assert(fuzz.map != MAP_FAILED);
        header = (struct state_header *)(void *)fuzz.map;
        atomic_init(&header->magic, STATE_MAGIC);
        header->version = STATE_VERSION;
        header->record_bytes = STATE_RECORD_BYTES;
        atomic_init(&header->next_session, take_number(8));
        atomic_init(&header->next_comm, take_number(8));
        atomic_init(&header->restarts, take_number(8));
        store(fd, "state");
        n = make_world(without);
        for (uint32_t i = 0; i < n_records; i++, n++)
                record_fill((void *)(fuzz.map + STATE_HEADER_BYTES + n % SLOTS * STATE_RECORD_BYTES));
        for (n_edits = take(1) % 8; n_edits > 0; n_edits--) {
                size_t at = take(2);

                fuzz.map[at % bytes] = (uint8_t)take(1);
        }
        munmap(fuzz.map, bytes);
        if (take(1) == 1) /* cut off somewhere */
                assert(ftruncate(fd, take(2)) == 0);
        for (; n_fds > 0; n_fds--)
                store_any();
}

/* Puts the descriptors where sd_listen_fds looks for them. */
static void hand_over(void) {
        char number[16];

        for (unsigned int i = 0; i < fuzz.n_fds; i++) {
                int fd = fcntl(fuzz.fds[i], F_DUPFD_CLOEXEC, FIRST_FD + (int)FDS_MAX);

                assert(fd >= 0);
                close(fuzz.fds[i]);
                fuzz.fds[i] = fd;
        }
        for (unsigned int i = 0; i < fuzz.n_fds; i++) {
                assert(dup2(fuzz.fds[i], FIRST_FD + (int)i) == FIRST_FD + (int)i);
                close(fuzz.fds[i]);
        }
        snprintf(number, sizeof(number), "%d", (int)getpid());
        setenv("LISTEN_PID", number, 1);
        snprintf(number, sizeof(number), "%u", fuzz.n_fds);
        setenv("LISTEN_FDS", number, 1);
        setenv("LISTEN_FDNAMES", fuzz.names, 1);
}

static void turn(struct manager *manager) {
        for (unsigned int i = 0; i < 3 && !manager->stopping; i++)
                assert(event_base_loop(manager->base, EVLOOP_ONCE | EVLOOP_NONBLOCK) >= 0);
}

/* A call with numbers in its fields: its tag, its length, then field by field. */
static size_t pack_call(uint8_t *out) {
        uint32_t body = 2 + take_number(17), n_fields = take(1) % 7, first_field = 1;
        size_t n = 0, length;

        out[n++] = 0x08; /* the message's id */
        out[n++] = (uint8_t)(take(1) & 0x7f);
        if (body >= 16) { /* a tag of two bytes */
                out[n++] = (uint8_t)((body << 3 | 2) & 0x7f) | 0x80;
                out[n++] = (uint8_t)(body >> 4);
        } else {
                out[n++] = (uint8_t)(body << 3 | 2);
        }
        length = n; /* two bytes for the length, filled in below */
        n += 2;
        if (take(1) & 1) { /* the id of a comm, mostly a right one */
                out[n++] = 0x0a;
                out[n++] = 0x80;
                out[n++] = 0x01;
                memcpy(out + n, fuzz.comm_id, COMM_ID_BYTES);
                out[n + take(1) % COMM_ID_BYTES] ^= take(1) == 1;
                n += COMM_ID_BYTES;
                first_field = 2;
        }
        for (uint32_t field = first_field; field <= n_fields; field++) {
                out[n++] = (uint8_t)(field << 3);
                if (take(1) == 1) { /* a large number */
                        memset(out + n, 0xff, 9);
                        out[n + 9] = 1;
                        n += 10;
                } else {
                        out[n++] = (uint8_t)(take(1) % 10);
                }
        }
        out[length] = (uint8_t)((n - length - 2) & 0x7f) | 0x80;
        out[length + 1] = (uint8_t)((n - length - 2) >> 7);
        return n;
}

/* What remains of the input is what clients say. */
static void talk(struct manager *manager) {
        uint8_t call[512];

        for (unsigned int i = 0; i < PACKETS && input < input_end && fuzz.n_peers > 0; i++) {
                int peer = fuzz.peers[take(1) % fuzz.n_peers];
                size_t n = take(1), left = (size_t)(input_end - input);

                if (n % 4) {
                        n = pack_call(call);
                        (void)!send(peer, call, n, MSG_DONTWAIT | MSG_NOSIGNAL);
                } else {
                        n = n < left ? n : left;
                        (void)!send(peer, input, n, MSG_DONTWAIT | MSG_NOSIGNAL);
                        input += n;
                }
                turn(manager);
        }
}

static void show_fds(void) {
        char path[32], target[128];

        for (int fd = 0; fd < 256; fd++) {
                ssize_t n;

                snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
                n = readlink(path, target, sizeof(target) - 1);
                if (n > 0)
                        fprintf(stderr, "%d: %.*s\n", fd, (int)n, target);
        }
}

/* The closer closes behind our back. */
static void await_fds(unsigned int wanted) {
        uint64_t end = clock_now_ns() + SETTLE_NS;
        unsigned int now = count_fds();

        while (now != wanted && clock_now_ns() < end) {
                sched_yield();
                now = count_fds();
        }
        if (now != wanted) {
                fprintf(stderr, "%u descriptors before, %u after; handed over: %s\n", wanted, now, fuzz.names);
                show_fds();
        }
        assert(now == wanted);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        char *argv[] = {(char *)"railmuxd", (char *)"--gpu",     (char *)"host:8", (char *)"--socket",
                        client_path,        (char *)"--control", control_path,     NULL};
        char error[CONFIG_ERROR_MAX];
        struct manager *manager;
        struct options options;
        struct config config;

        start_once();
        fuzz.idle_fds = count_fds(); /* anew each time: a sanitizer starts its symbolizer when it likes */
        input = data;
        input_end = data + size;
        fuzz.n_fds = fuzz.n_peers = 0;
        fuzz.names[0] = 0;
        make_state();
        hand_over();
        config_init(&config);
        assert(options_parse(&options, 7, argv, error) == 0 && options_apply(&options, &config, error) == 0);
        assert(manager_new(&config, &options, &manager) == 0);
        turn(manager);
        talk(manager);
        for (unsigned int i = 0; i < fuzz.n_peers; i++)
                close(fuzz.peers[i]);
        turn(manager);
        manager_free(manager);
        config_deinit(&config);
        await_fds(fuzz.idle_fds - fuzz.n_fds);
        for (int fd = FIRST_FD; fd < FIRST_FD + (int)fuzz.n_fds; fd++) /* the places are kept, see start_once */
                assert(dup2(STDERR_FILENO, fd) == fd);
        return 0;
}
