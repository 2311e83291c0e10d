/* SPDX-License-Identifier: MIT */
/*
 * A charge is taken before the resource exists and given back after it is gone, so an account never shows less than
 * what is held. Limits may be lowered below what is in use (a reload): then nothing more is granted until enough has
 * been released, but nothing is taken away either.
 */
#include <assert.h>
#include <stdbool.h>

#include "util/charge.h"

const char *charge_kind_name(enum charge_kind kind) {
        static const char *const names[CHARGE_KIND_COUNT] = {
                [CHARGE_SESSIONS] = "sessions", [CHARGE_COMMS] = "comms", [CHARGE_BUFFERS] = "buffers",
                [CHARGE_BYTES] = "bytes",       [CHARGE_RINGS] = "rings", [CHARGE_FDS] = "fds",
        };

        return (unsigned int)kind < CHARGE_KIND_COUNT ? names[kind] : "unknown";
}

/* Compared by what is left, so the sum cannot overflow. */
static bool account_has(const struct charge_account *account, enum charge_kind kind, uint64_t amount) {
        return account->used[kind] <= account->limit[kind] && amount <= account->limit[kind] - account->used[kind];
}

int charge_take(struct charge *charge, struct charge_account *account, enum charge_kind kind, uint64_t amount) {
        assert(!charge->account);
        assert((unsigned int)kind < CHARGE_KIND_COUNT);

        if (!account_has(account, kind, amount)) {
                ++account->refused[kind];
                return CHARGE_E_LIMIT;
        }
        if (account->whole && !account_has(account->whole, kind, amount)) {
                ++account->refused[kind];
                ++account->whole->refused[kind];
                return CHARGE_E_WHOLE;
        }
        account->used[kind] += amount;
        if (account->whole)
                account->whole->used[kind] += amount;
        *charge = (struct charge){.account = account, .amount = amount, .kind = kind};
        return 0;
}

void charge_release(struct charge *charge) {
        if (!charge->account)
                return;
        assert(charge->account->used[charge->kind] >= charge->amount);
        charge->account->used[charge->kind] -= charge->amount;
        if (charge->account->whole) {
                assert(charge->account->whole->used[charge->kind] >= charge->amount);
                charge->account->whole->used[charge->kind] -= charge->amount;
        }
        *charge = (struct charge)CHARGE_INIT;
}
