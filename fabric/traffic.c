/* SPDX-License-Identifier: MIT */
/*
 * Counts that can be compared with what plans say. A message counts when it is done: its sender drops it then and never
 * before, and its receiver stores it once, however many connections died under it. So nothing is counted twice, and
 * what was sent again counts on the rail that brought it. Chunks that lost their area on their way are not exact.
 */
#include "fabric/private.h"

static void traffic_add_out(struct fabric_traffic *traffic, const struct fabric_item *item) {
        traffic->chunks_out += item->kind == FRAME_CHUNK;
        traffic->credits_out += item->kind == FRAME_CREDIT;
        traffic->bytes_out += item->kind == FRAME_CHUNK ? item->data_bytes : 0;
}

static void traffic_add_in(struct fabric_traffic *traffic, const struct frame *frame) {
        traffic->chunks_in += frame->kind == FRAME_CHUNK;
        traffic->credits_in += frame->kind == FRAME_CREDIT;
        traffic->bytes_in += frame->data_bytes;
}

void traffic_out(const struct fabric_item *item) {
        struct fabric_port *port = item->port;
        struct fabric_rail *rail = port->route->rail;

        port->messages_sent++;
        port->bytes_sent += item->kind == FRAME_CHUNK ? item->data_bytes : 0;
        traffic_add_out(&rail->traffic, item);
        traffic_add_out(&item->area->traffic[rail->index], item);
}

void traffic_in(struct fabric_rail *rail, struct fabric_area *area, const struct frame *frame) {
        traffic_add_in(&rail->traffic, frame);
        traffic_add_in(&area->traffic[rail->index], frame);
}

int fabric_area_traffic(struct fabric *fabric, uint64_t key, struct fabric_traffic ret_traffic[FABRIC_RAILS_MAX]) {
        struct fabric_area *area;

        pthread_mutex_lock(&fabric->lock);
        HASH_FIND(hh, fabric->areas, &key, sizeof(key), area);
        if (area)
                memcpy(ret_traffic, area->traffic, sizeof(area->traffic));
        pthread_mutex_unlock(&fabric->lock);
        return area ? 0 : fabric_refuse(fabric, FABRIC_E_UNKNOWN, "there is no area %llx", (unsigned long long)key);
}
