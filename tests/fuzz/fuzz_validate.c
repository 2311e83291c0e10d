/* SPDX-License-Identifier: MIT */
/*
 * Request lines and argument blocks of a client that writes what it likes.
 *
 * The input is a list of commands: a line and a block (either any bytes, or right ones of which some bytes were
 * changed, so that the fuzzer gets past the first checks), or the end of one of the requests that were taken. A line
 * goes its real way: into the client area, latched, validated with its block, held, published. Checked for each that is
 * taken: what it says was computed again here with wider numbers, every address lies in the buffer that the line or
 * entry names, copies are copies, and everything that was counted is given back.
 */
#undef NDEBUG /* the asserts are the test */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "executor/bell.h"
#include "executor/executor.h"
#include "executor/session.h"
#include "executor/validate.h"
#include "railmux/railmux.h"
#include "util/memfd.h"
#include "util/type.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define DEPTH          4u
#define ARGUMENT_BYTES 24576u /* room for the largest group, and not for two of them */
#define ENTRIES_MAX    24u    /* that are made from bytes */

typedef unsigned __int128 wide;

static struct {
        struct executor executor;
        struct session *session;
        struct bell bell;
        struct request requests[DEPTH];
        struct ring_request lines[DEPTH];
        bool open[DEPTH];
        struct validate_rank rank;
        uint32_t published; /* sequence of the last line */
} fuzz;

static const struct {
        uint32_t id;
        uint64_t bytes;
} buffers[] = {{1, 4096}, {2, 65536}, {0x80000001, 8192}};
#define N_BUFFERS (sizeof(buffers) / sizeof(buffers[0]))

static const uint8_t *input, *input_end;

static uint64_t take(unsigned int bytes) {
        uint64_t value = 0;

        while (bytes-- && input < input_end)
                value = value << 8 | *input++;
        return value;
}

/* Small, or at an edge. */
static uint64_t take_number(void) {
        uint32_t kind = (uint32_t)take(1);

        switch (kind >> 5) {
        case 0:
                return take(8);
        case 1:
                return UINT64_MAX - (kind & 31);
        case 2:
                return (UINT64_C(1) << (kind & 31) << 32) - take(1);
        case 3:
                return take(2);
        default:
                return kind & 31;
        }
}

static void fuzz_setup(void) {
        struct bell *bell = &fuzz.bell;
        struct ring_layout layout;

        if (fuzz.session)
                return;
        fuzz.executor.ops = &gpu_host_ops;
        fuzz.executor.attention_fd = -1;
        assert(gpu_host_ops.open(1, &fuzz.executor.gpu) == 0);
        assert(session_attach(&fuzz.executor, 1, 1, &fuzz.session) == 0);
        for (size_t i = 0; i < N_BUFFERS; i++) {
                int fd;

                assert(memfd_new("fuzz", buffers[i].bytes, &fd) == 0);
                assert(session_buffer_import(fuzz.session, buffers[i].id, buffers[i].bytes, fd) == 0);
                close(fd);
        }
        assert(ring_layout_init(&layout, DEPTH, ARGUMENT_BYTES) == RING_OK && layout.argument_bytes == ARGUMENT_BYTES);
        bell->executor = &fuzz.executor;
        bell->session = fuzz.session;
        bell->event_fd = -1;
        bell->requests = fuzz.requests;
        /* Not mapped: so that a read behind the end is seen. */
        bell->client_area = aligned_alloc(4096, layout.client_bytes);
        bell->executor_area = aligned_alloc(4096, layout.executor_bytes);
        assert(bell->client_area && bell->executor_area);
        bell->consumer.layout = layout;
}

static char *argument_space(void) {
        return (char *)fuzz.bell.client_area + fuzz.bell.consumer.layout.argument_offset;
}

/* ---- making ------------------------------------------------------------------------------------------------------ */
static uint32_t take_buffer(void) {
        uint32_t i = (uint32_t)take(1) % 8;

        return i < 7 ? buffers[i % N_BUFFERS].id : (uint32_t)take_number();
}

/* One more than there are. */
static uint32_t take_rank(void) {
        return (uint32_t)take(1) % (fuzz.rank.n_ranks + 1);
}

static void make_entry(struct ring_group_entry *entry) {
        *entry = (struct ring_group_entry){
                .operation = RING_OP_SEND + (uint32_t)take(1) % 2,
                .type = (uint32_t)take(1) % RMX_TYPE_COUNT,
                .peer = take_rank(),
                .sequence = (uint32_t)take(1),
                .count = take_number(),
                .buffer = take_buffer(),
        };
        entry->offset = take_number() * type_size(entry->type);
}

/* Returns how many bytes the block has. */
static size_t make_block(struct ring_request *line, char *block, size_t room) {
        uint32_t operation = ring_request_op(line), n = fuzz.rank.n_ranks;
        uint64_t words[4 * PLAN_RANKS_MAX];
        struct ring_group_entry entry;

        if (operation == RING_OP_GROUP) {
                uint32_t kind = (uint32_t)take(1), made;

                /* Few, or about as many as there may be, all alike: some of those fill the argument space. */
                n = kind < 224 ? kind % ENTRIES_MAX : RING_GROUP_MAX - 2 + kind % 4;
                made = n < ENTRIES_MAX ? n : 1;
                for (uint32_t i = 0; i < n && (i + 1) * sizeof(entry) <= room; i++) {
                        if (i < made)
                                make_entry(&entry);
                        memcpy(block + i * sizeof(entry), &entry, sizeof(entry));
                }
                ring_request_set_u64(line, RING_W_COUNT_LO, take(1) % 16 ? n : take_number());
                ring_request_set_head(line, operation, 0, 0);
                line->word[RING_W_PEER] = line->word[RING_W_SEQUENCE] = 0;
                return n * sizeof(entry) < room ? n * sizeof(entry) : room;
        }
        if (operation == RING_OP_ALL_TO_ALL_V) {
                for (uint32_t i = 0; i < 4 * n; i++)
                        words[i] = take_number();
                if (take(1) % 8)
                        words[2 * n + fuzz.rank.rank] = words[fuzz.rank.rank];
                ring_request_set_u64(line, RING_W_COUNT_LO, 0);
                ring_request_set_head(line, operation, ring_request_type(line), 0);
        } else {
                n = 1;
                words[0] = words[1] = words[2] = words[3] = take_number();
                if (ring_request_redop(line) != RMX_PREMUL_SUM)
                        line->word[RING_W_ARGUMENT] = 0;
        }
        if (4 * n * sizeof(words[0]) > room)
                return 0;
        memcpy(block, words, 4 * n * sizeof(words[0]));
        return 4 * n * sizeof(words[0]);
}

static void make_line(struct ring_request *line) {
        uint32_t place = RING_ARGUMENT_ALIGN * (uint32_t)take(1),
                 operation = 1 + (uint32_t)take(1) % (RING_OP_COUNT - 1);
        uint32_t type = (uint32_t)take(1) % RMX_TYPE_COUNT;
        bool reduces = operation <= RING_OP_REDUCE || operation == RING_OP_REDUCE_SCATTER;
        size_t size;

        *line = (struct ring_request){0};
        ring_request_set_head(line, operation, type, reduces ? (uint32_t)take(1) % RMX_REDOP_COUNT : 0);
        ring_request_set_u64(line, RING_W_COUNT_LO, operation == RING_OP_BARRIER ? 0 : take_number());
        line->word[RING_W_IN_BUFFER] = take_buffer();
        line->word[RING_W_OUT_BUFFER] = take_buffer();
        ring_request_set_u64(line, RING_W_IN_LO, take_number() * type_size(type));
        ring_request_set_u64(line, RING_W_OUT_LO, take_number() * type_size(type));
        if (operation == RING_OP_REDUCE || operation == RING_OP_BROADCAST || operation == RING_OP_GATHER ||
            operation == RING_OP_SCATTER || operation == RING_OP_SEND || operation == RING_OP_RECV)
                line->word[RING_W_PEER] = take_rank();
        line->word[RING_W_ARGUMENT] = place;
        line->word[RING_W_SEQUENCE] = (uint32_t)take(1);
        size = make_block(line, argument_space() + place, ARGUMENT_BYTES - place);
        for (uint32_t n = (uint32_t)take(1) % 4; n && size; n--) {
                uint32_t at = (uint32_t)take(2);

                argument_space()[place + at % size] = (char)take(1);
        }
        for (uint32_t n = (uint32_t)take(1) % 4; n; n--) {
                uint32_t at = (uint32_t)take(1);

                ((uint8_t *)line->word)[at % sizeof(line->word)] = (uint8_t)take(1);
        }
}

/* ---- checking ---------------------------------------------------------------------------------------------------- */
static void check_range(uint32_t id, uint64_t offset, wide elements, uint32_t element_bytes, const void *address,
                        const struct buffer *buffer) {
        if (elements == 0) {
                assert(!address && !buffer);
                return;
        }
        assert(buffer && buffer == session_buffer(fuzz.session, id) && buffer->id == id);
        assert(offset % element_bytes == 0);
        assert((wide)offset + elements * element_bytes <= buffer->bytes);
        assert(address == (const char *)buffer->address + offset);
}

static wide vector_end(const uint64_t *counts, const uint64_t *places) {
        wide end = 0;

        for (uint32_t i = 0; i < fuzz.rank.n_ranks; i++)
                if (counts[i] && (wide)counts[i] + places[i] > end) /* nothing may be anywhere */
                        end = (wide)counts[i] + places[i];
        return end;
}

static void check_collective(const struct ring_request *line, const struct request *request) {
        const struct gpu_request *gpu = &request->one;
        uint32_t op = request->operation, root = line->word[RING_W_PEER];
        wide count = ring_request_u64(line, RING_W_COUNT_LO), all = count * fuzz.rank.n_ranks, in = count, out = count;
        bool is_root = root == fuzz.rank.rank, rooted = false, reduces = false;

        switch (op) {
        case RING_OP_ALL_REDUCE:
                reduces = true;
                break;
        case RING_OP_REDUCE:
                reduces = rooted = true;
                out = is_root ? count : 0;
                break;
        case RING_OP_BROADCAST:
                rooted = true;
                in = is_root ? count : 0;
                break;
        case RING_OP_ALL_GATHER:
                out = all;
                break;
        case RING_OP_REDUCE_SCATTER:
                reduces = true;
                in = all;
                break;
        case RING_OP_ALL_TO_ALL:
                in = out = all;
                break;
        case RING_OP_ALL_TO_ALL_V:
                assert(count == 0 && gpu->shape.vector == &request->vector);
                assert(request->vector.send_count == request->memory);
                assert(request->vector.send_count[fuzz.rank.rank] == request->vector.recv_count[fuzz.rank.rank]);
                in = vector_end(request->vector.send_count, request->vector.send_offset);
                out = vector_end(request->vector.recv_count, request->vector.recv_offset);
                break;
        case RING_OP_GATHER:
                rooted = true;
                out = is_root ? all : 0;
                break;
        case RING_OP_SCATTER:
                rooted = true;
                in = is_root ? all : 0;
                break;
        default:
                assert(op == RING_OP_BARRIER && count == 0);
                in = out = 0;
                break;
        }
        assert(root < (rooted ? fuzz.rank.n_ranks : 1) && gpu->shape.root == root);
        assert(reduces ? gpu->redop < RMX_REDOP_COUNT : ring_request_redop(line) == 0);
        assert(gpu->shape.element_bytes == type_size(ring_request_type(line)) && gpu->shape.element_bytes);
        assert(gpu->shape.count == count && request->gpu == gpu && request->n_gpu == 1 && !request->entries);
        check_range(line->word[RING_W_IN_BUFFER], ring_request_u64(line, RING_W_IN_LO), in, gpu->shape.element_bytes,
                    gpu->in, request->in_buffer);
        check_range(line->word[RING_W_OUT_BUFFER], ring_request_u64(line, RING_W_OUT_LO), out, gpu->shape.element_bytes,
                    gpu->out, request->out_buffer);
}

static void check_entry(const struct ring_group_entry *from, const struct request *request, uint32_t i) {
        const struct p2p_entry *entry = &request->entries[i];
        const struct gpu_request *gpu = &request->gpu[i];
        bool sends = from->operation == RING_OP_SEND;

        assert((sends || from->operation == RING_OP_RECV) && from->zero == 0);
        assert(entry->sends == sends && entry->request == request && !entry->next);
        assert(entry->peer == from->peer && entry->peer < fuzz.rank.n_ranks && entry->sequence == from->sequence);
        assert(gpu->shape.element_bytes == type_size(from->type) && gpu->shape.element_bytes);
        assert(gpu->shape.count == from->count && (sends ? gpu->out : gpu->in) == NULL);
        check_range(from->buffer, from->offset, from->count, gpu->shape.element_bytes, sends ? gpu->in : gpu->out,
                    entry->buffer);
}

static void check_pairs(const struct ring_request *line, const struct request *request) {
        const struct ring_group_entry *from = request->memory;
        bool sends = request->operation == RING_OP_SEND;
        const struct ring_group_entry one = {
                .operation = request->operation,
                .type = ring_request_type(line),
                .peer = line->word[RING_W_PEER],
                .sequence = line->word[RING_W_SEQUENCE],
                .count = ring_request_u64(line, RING_W_COUNT_LO),
                .offset = ring_request_u64(line, sends ? RING_W_IN_LO : RING_W_OUT_LO),
                .buffer = line->word[sends ? RING_W_IN_BUFFER : RING_W_OUT_BUFFER],
        };

        if (request->operation != RING_OP_GROUP) {
                assert(request->n_gpu == 1 && !request->memory);
                check_entry(&one, request, 0);
                return;
        }
        assert(request->n_gpu && request->n_gpu <= RING_GROUP_MAX);
        assert(request->n_gpu == ring_request_u64(line, RING_W_COUNT_LO));
        for (uint32_t i = 0; i < request->n_gpu; i++)
                check_entry(&from[i], request, i);
}

static void check_counts(void) {
        uint32_t users[N_BUFFERS] = {0};
        uint64_t bytes = 0;

        for (uint32_t slot = 0; slot < DEPTH; slot++) {
                const struct request *request = &fuzz.requests[slot];

                if (!fuzz.open[slot])
                        continue;
                bytes += request->argument_bytes;
                for (size_t b = 0; b < N_BUFFERS; b++) {
                        const struct buffer *buffer = session_buffer(fuzz.session, buffers[b].id);

                        users[b] += (request->in_buffer == buffer) + (request->out_buffer == buffer);
                        for (uint32_t i = 0; request->entries && i < request->n_gpu; i++)
                                users[b] += request->entries[i].buffer == buffer;
                }
        }
        assert(fuzz.bell.argument_bytes == bytes && bytes <= ARGUMENT_BYTES);
        for (size_t b = 0; b < N_BUFFERS; b++)
                assert(session_buffer(fuzz.session, buffers[b].id)->users == users[b]);
}

/* ---- commands ---------------------------------------------------------------------------------------------------- */
static void command_publish(uint32_t slot) {
        if (!fuzz.open[slot])
                return;
        fuzz.open[slot] = false;
        bell_publish(&fuzz.requests[slot], RMX_OK);
        assert(!fuzz.requests[slot].memory && !fuzz.requests[slot].entries);
}

static void command_line(bool raw) {
        uint32_t sequence = ring_sequence_next(fuzz.published), slot = sequence % DEPTH, latched, code;
        _Atomic uint64_t *cells = (_Atomic uint64_t *)fuzz.bell.client_area + (size_t)slot * RING_WORDS;
        struct request *request = &fuzz.requests[slot];
        struct ring_request *line = &fuzz.lines[slot];
        const char *text = NULL;
        uint64_t *copy = NULL;

        command_publish(slot);
        if (raw)
                for (uint32_t i = 0; i < RING_WORDS; i++)
                        line->word[i] = (uint32_t)take(4);
        else
                make_line(line);
        for (uint32_t i = 0; i < RING_WORDS; i++)
                cells[i] = (uint64_t)sequence << 32 | line->word[i];
        assert(ring_consumer_latch(&fuzz.bell.consumer, line, &latched) == RING_OK && latched == sequence);
        fuzz.published = sequence;
        fuzz.open[slot] = true;
        *request = (struct request){.bell = &fuzz.bell, .ring_sequence = sequence};
        code = validate_request(&fuzz.executor, fuzz.session, &fuzz.rank, line, request, &text);
        if (request->memory) { /* what was copied is what lay there, and stays so */
                copy = malloc(request->argument_bytes);
                assert(copy && line->word[RING_W_ARGUMENT] && line->word[RING_W_ARGUMENT] % RING_ARGUMENT_ALIGN == 0);
                memcpy(copy, argument_space() + line->word[RING_W_ARGUMENT], request->argument_bytes);
                memset(argument_space() + line->word[RING_W_ARGUMENT], 0xee, request->argument_bytes);
                assert(memcmp(copy, request->memory, request->argument_bytes) == 0);
                free(copy);
        }
        assert(code < RMX_E_COUNT && (code == RMX_OK) == (text == NULL));
        request_hold(request);
        if (code) {
                assert(!request->entries && !request->in_buffer && !request->out_buffer);
                return;
        }
        assert(line->word[RING_W_FLAGS] == 0 && line->word[RING_W_ZERO] == 0);
        assert(!ring_sequence_before(fuzz.rank.epoch, line->word[RING_W_EPOCH]));
        assert(request->operation == ring_request_op(line));
        if (request->operation == RING_OP_SEND || request->operation == RING_OP_RECV ||
            request->operation == RING_OP_GROUP)
                check_pairs(line, request);
        else
                check_collective(line, request);
}

static void command(void) {
        uint32_t kind = (uint32_t)take(1);

        switch (kind % 8) {
        case 0:
                command_publish(kind / 8 % DEPTH);
                break;
        case 1: /* any bytes anywhere in the argument space */
                for (uint32_t at = (uint32_t)take(2), n = (uint32_t)take(1); n && input < input_end; n--, at++)
                        argument_space()[at % ARGUMENT_BYTES] = (char)take(1);
                break;
        case 2:
                command_line(true);
                break;
        default:
                command_line(false);
                break;
        }
        check_counts();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        static const uint32_t epochs[] = {1, 0, 0x7fffffff, 0xffffffff};
        struct bell *bell = &fuzz.bell;
        struct ring_layout layout;

        fuzz_setup();
        layout = bell->consumer.layout;
        input = data;
        input_end = data + size;
        memset(bell->client_area, 0, layout.client_bytes);
        memset(bell->executor_area, 0, layout.executor_bytes);
        ring_consumer_init(&bell->consumer, &layout, bell->client_area, bell->executor_area, RING_FIRST_SEQUENCE);
        fuzz.published = RING_FIRST_SEQUENCE - 1;
        fuzz.rank.n_ranks = 1 + (uint32_t)take(1) % PLAN_RANKS_MAX;
        fuzz.rank.rank = (uint32_t)take(1) % fuzz.rank.n_ranks;
        fuzz.rank.epoch = epochs[take(1) % 4];
        while (input < input_end)
                command();
        for (uint32_t slot = 0; slot < DEPTH; slot++)
                command_publish(slot);
        check_counts();
        return 0;
}
