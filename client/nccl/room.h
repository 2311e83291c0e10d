/* SPDX-License-Identifier: MIT */
#pragma once
/* Calls that wait, when there is no room for them. See room.c. */
#include <stdbool.h>

#define ROOM_TEXT_BYTES 320u

/* Calls until that is no longer refused for want of room, or nothing comes free. waits: `call` itself waits for what
 * other threads wait for. Returns RMX_*, and in text what librailmux said of it. */
int room_call(int (*call)(void *userdata), void *userdata, bool waits, char text[ROOM_TEXT_BYTES]);
