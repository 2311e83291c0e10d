/* SPDX-License-Identifier: MIT */
#pragma once
/* A TCP socket whose close takes so many seconds, or until *ret_peer is closed, which does not read. */
#include "tests/cmocka_all.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

static inline int lingering_socket(int seconds, int *ret_peer) {
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        const struct linger linger = {.l_onoff = 1, .l_linger = seconds};
        socklen_t length = sizeof(address);
        static char data[65536];
        int listener = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0);

        assert_int_equal(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &(int){4096}, sizeof(int)), 0);
        assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &(int){4096}, sizeof(int)), 0);
        assert_int_equal(bind(listener, (struct sockaddr *)&address, length), 0);
        assert_int_equal(listen(listener, 1), 0);
        assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &length), 0);
        assert_int_equal(connect(fd, (struct sockaddr *)&address, length), 0);
        *ret_peer = accept(listener, NULL, NULL);
        assert_true(*ret_peer >= 0);
        close(listener);
        fcntl(fd, F_SETFL, O_NONBLOCK);
        while (write(fd, data, sizeof(data)) > 0)
                ;
        assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
        return fd;
}
