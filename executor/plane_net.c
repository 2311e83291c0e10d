/* SPDX-License-Identifier: MIT */
#include "executor/plane_net.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ring/net.h"
#include "util/memfd.h"

int plane_net_map(struct plane_net_map *map, int area_fd, int doorbell_fd, char *error) {
        struct stat st;
        void *area = NULL;
        int r = fstat(area_fd, &st) < 0 ? -errno : 0;

        if (!r)
                r = memfd_map(area_fd, (size_t)st.st_size, 1, 1, &area);
        if (r) {
                snprintf(error, PLANE_TEXT, "mapping a net area: %s", strerror(-r));
                return r;
        }
        map->net.area = area;
        map->net.bytes = map->bytes = (size_t)st.st_size;
        if (!net_area_valid(area, map->bytes)) {
                snprintf(error, PLANE_TEXT, "what was sent as the communicator's net area is none");
                r = -EINVAL;
        }
        if (!r) {
                map->net.doorbell_fd = fcntl(doorbell_fd, F_DUPFD_CLOEXEC, 0);
                r = map->net.doorbell_fd < 0 ? -errno : 0;
                if (r)
                        snprintf(error, PLANE_TEXT, "taking the fabric's doorbell: %s", strerror(-r));
        }
        if (r)
                plane_net_unmap(map);
        return r;
}

void plane_net_unmap(struct plane_net_map *map) {
        memfd_unmap(map->net.area, map->bytes);
        if (map->net.doorbell_fd >= 0)
                close(map->net.doorbell_fd);
        *map = (struct plane_net_map)PLANE_NET_MAP_NULL;
}
