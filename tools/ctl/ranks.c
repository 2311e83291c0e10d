/* SPDX-License-Identifier: MIT */
#include "tools/ctl/ranks.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static bool ranks_before(uint32_t a, uint32_t b) {
        return (int32_t)(a - b) < 0;
}

/* Is its last sequence one to look at? */
static bool ranks_counts(const Railmux__Control__Member *member) {
        return !member->left && !*member->node;
}

uint32_t ranks_highest(const Railmux__Control__Comm *comm) {
        uint32_t highest = 0;
        bool any = false;

        for (size_t i = 0; i < comm->n_members; i++) {
                const Railmux__Control__Member *member = comm->members[i];

                if (ranks_counts(member) && (!any || ranks_before(highest, member->rung))) {
                        highest = member->rung;
                        any = true;
                }
        }
        return highest;
}

bool ranks_awaited(const Railmux__Control__Comm *comm, const Railmux__Control__Member *member) {
        return member->awaited || (ranks_counts(member) && ranks_before(member->rung, ranks_highest(comm)));
}

static void ranks_append(char *out, size_t out_size, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void ranks_append(char *out, size_t out_size, const char *format, ...) {
        size_t length = strlen(out);
        va_list args;

        va_start(args, format);
        vsnprintf(out + length, out_size - length, format, args);
        va_end(args);
}

static bool ranks_at(const Railmux__Control__Member *member, uint32_t sequence) {
        return ranks_counts(member) && member->rung == sequence;
}

/* "ranks 0-2, 4" of those at a sequence; members come in the order of ranks. */
static void ranks_group(const Railmux__Control__Comm *comm, uint32_t sequence, char *out, size_t out_size) {
        unsigned int n = 0, shown = 0;

        for (size_t i = 0; i < comm->n_members; i++)
                n += ranks_at(comm->members[i], sequence);
        ranks_append(out, out_size, "%u by rank%s ", sequence, n == 1 ? "" : "s");
        for (size_t i = 0; i < comm->n_members; i++) {
                size_t last = i;

                if (!ranks_at(comm->members[i], sequence))
                        continue;
                while (last + 1 < comm->n_members && ranks_at(comm->members[last + 1], sequence) &&
                       comm->members[last + 1]->rank == comm->members[last]->rank + 1)
                        last++;
                ranks_append(out, out_size, "%s%u", shown++ ? ", " : "", comm->members[i]->rank);
                if (last > i)
                        ranks_append(out, out_size, "-%u", comm->members[last]->rank);
                i = last;
        }
}

const char *ranks_text(const Railmux__Control__Comm *comm, char *out, size_t out_size) {
        uint32_t sequence = ranks_highest(comm);
        bool first = true;

        out[0] = '\0';
        for (;;) {
                uint32_t next = 0;
                bool any = false, here = false;

                for (size_t i = 0; i < comm->n_members; i++) {
                        const Railmux__Control__Member *member = comm->members[i];

                        if (!ranks_counts(member))
                                continue;
                        here = here || member->rung == sequence;
                        if (ranks_before(member->rung, sequence) && (!any || ranks_before(next, member->rung))) {
                                next = member->rung;
                                any = true;
                        }
                }
                if (here) {
                        if (!first)
                                ranks_append(out, out_size, "; ");
                        ranks_group(comm, sequence, out, out_size);
                        first = false;
                }
                if (!any)
                        return out;
                sequence = next;
        }
}
