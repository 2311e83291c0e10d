/* SPDX-License-Identifier: MIT */
/*
 * A call of librailmux that waits for its end waits for room, too, but not for places that requests of its own thread
 * have, since as far as librailmux knows only this thread could give them back. Here those are calls on communicators
 * that do not block. They may long be over, and nobody has asked; so who needs their places looks after them.
 *
 * What was refused has left nothing behind, and is called again when something has moved. There is a limit to that: the
 * place in question may come free only when this very call has returned, while others move all the time.
 */
#include "client/nccl/room.h"

#include <stdint.h>
#include <stdio.h>

#include "client/nccl/clock.h"
#include "client/nccl/pending.h"
#include "railmux/railmux.h"

#define LIMIT_MS 10000u

int room_call(int (*call)(void *userdata), void *userdata, bool waits, char text[ROOM_TEXT_BYTES]) {
        uint64_t until_ms = 0, before = UINT64_MAX; /* the first look is reason enough */
        int r;

        while ((r = call(userdata))) {
                snprintf(text, ROOM_TEXT_BYTES, "%s", rmx_last_error());
                if (r != RMX_E_BUSY || (waits && !pendings_any()))
                        break;
                if (!until_ms)
                        until_ms = clock_now_ms() + LIMIT_MS;
                if (!pendings_make_room(before, false) || clock_now_ms() >= until_ms)
                        break;
                before = pendings_moves();
        }
        return r;
}
