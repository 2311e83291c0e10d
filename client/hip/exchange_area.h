/* SPDX-License-Identifier: MIT */
#pragma once
/* Exchange areas: whose they are, and how another rank comes to one. See exchange_area.c. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/hip/private.h"

/* Memory of a device that ranks of other processes may map. Never freed before the device is closed. */
struct exchange_memory {
        struct exchange_memory *other; /* of this process */
        char *address;
        size_t bytes;
        int device;
        uint64_t number; /* which nothing else has */
        hipIpcMemHandle_t handle;
};

/* An area with its head, which is in memory that many of them share. */
struct exchange_area {
        struct exchange_area *next; /* of this device */
        struct exchange_memory memory;
        struct exchange_heads *heads;
        char *head;
        bool taken;    /* or not to be used again */
        uint32_t owes; /* ranks of a communicator that is over, of which some have something to take yet; 0: none */
};

/* What another rank needs to map memory. */
struct exchange_offer {
        uint64_t number;
        uint64_t address;
        uint64_t bytes;
        hipIpcMemHandle_t handle;
};

/* Takes one that is free, or makes one, and clears it. With gpu->exchanges_mutex not held, as the next one. */
int exchange_area_take(struct client_gpu *gpu, size_t bytes, struct exchange_area **ret_area, char *error);
/* n_ranks: of a communicator that had transfers, 0: it had none. If something that was sent has not been taken yet, the
 * area is not used before that is so. */
void exchange_area_give(struct client_gpu *gpu, struct exchange_area *area, uint32_t n_ranks);
/* It is never given back, and others may write to its head even after the end. */
void exchange_area_keep(struct client_gpu *gpu, struct exchange_area *area);
/* What is to be said of an area, and of the memory its head is in; *ret_at: where in there. */
void exchange_area_offer(const struct exchange_area *area, struct exchange_offer *ret_area,
                         struct exchange_offer *ret_heads, uint64_t *ret_at);
/* The address of what another rank offers, of this process or another one. With gpu->exchanges_mutex, and the device
 * current. */
int exchange_area_map(struct client_gpu *gpu, const struct exchange_offer *offer, bool here, char **ret_address,
                      char *error);
/* At the end, with the device current, and no other thread about: mappings and areas are given back. */
void exchange_areas_free(struct client_gpu *gpu);
