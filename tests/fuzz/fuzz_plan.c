/* SPDX-License-Identifier: MIT */
/* Random plans and cases: the verifier returns a verdict and touches nothing else. What it accepts is bound to be
 * small. */
#include <assert.h>
#include <string.h>

#include "plan/verify.h"
#include "plan/verify_machine.h"

#define COUNT_MAX 512u /* elements: so that an input does not take seconds */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The next bytes of the input; zeros when it is used up. */
static void take(const uint8_t **data, size_t *size, void *into, size_t length) {
        size_t n = *size < length ? *size : length;

        memset(into, 0, length);
        memcpy(into, *data, n);
        *data += n;
        *size -= n;
}

static void take_plan(const uint8_t **data, size_t *size, struct plan *ret_plan) {
        uint8_t mode, choice[4];

        take(data, size, &mode, 1);
        if (mode & 1) { /* raw */
                take(data, size, ret_plan, sizeof(*ret_plan));
        } else { /* a plan that exists, with some bytes of its phases changed */
                take(data, size, choice, sizeof(choice));
                memset(ret_plan, 0, sizeof(*ret_plan));
                (void)plan_build(choice[0] % 14, choice[1] % 5, choice[2] % 66, ret_plan);
                for (uint32_t i = 0; i < choice[3] % 4u; i++) {
                        uint8_t edit[2];

                        take(data, size, edit, sizeof(edit));
                        ((uint8_t *)ret_plan->phases)[edit[0] % sizeof(ret_plan->phases)] = edit[1];
                }
        }
        if (ret_plan->n_ranks > 8 && (mode & 30) != 0) /* many ranks take long, and show little that few do not */
                ret_plan->n_ranks %= 9;
}

static void take_case(const uint8_t **data, size_t *size, struct plan_case *ret_case) {
        uint16_t words[4];
        uint8_t flags;

        take(data, size, words, sizeof(words));
        take(data, size, &flags, 1);
        *ret_case = (struct plan_case){
                .geometry = {words[0], words[1] % 8},
                .count = words[2] % COUNT_MAX,
                .element_bytes = words[3] % 32,
                .root = flags >> 2,
                .in_place = flags & 1,
        };
        if (flags & 2)
                ret_case->count <<= flags >> 2;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        struct verify_options options = VERIFY_OPTIONS_NULL;
        struct plan_verdict verdict = {0};
        struct plan plan, next;
        struct plan_case c, next_case;
        uint8_t mode;
        int r;

        take(&data, &size, &mode, 1);
        take_plan(&data, &size, &plan);
        take_case(&data, &size, &c);
        next = plan;
        next_case = c;
        if (mode & 1) {
                take_plan(&data, &size, &next);
                take_case(&data, &size, &next_case);
                next_case.geometry = c.geometry;
        }
        options.mutation = (struct verify_mutation){mode >> 2 & 31, VERIFY_EVERY_RANK, mode >> 7, mode >> 6 & 1};
        r = verify_pair(&plan, &c, mode & 2 ? &next : NULL, &next_case, &options, &verdict);
        assert(r == 0 || r == PLAN_E_INVALID);
        if (r) {
                assert(verdict.condition > PLAN_FAULT_NONE && verdict.condition <= PLAN_FAULT_UNCONSUMED);
                assert(memchr(verdict.text, 0, sizeof(verdict.text)) != NULL && verdict.text[0] != 0);
        } else {
                assert(verdict.condition == PLAN_FAULT_NONE);
        }
        return 0;
}
