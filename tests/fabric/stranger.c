/* SPDX-License-Identifier: MIT */
#include "tests/fabric/stranger.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fabric/frame.h"

int stranger_dial(struct rig *rig, uint32_t node) {
        return stranger_dial_from(rig, node, "127.0.0.1");
}

int stranger_dial_from(struct rig *rig, uint32_t node, const char *address) {
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(rig_port(rig, node, 0))};
        struct sockaddr_in from = {.sin_family = AF_INET};
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        assert_true(fd >= 0);
        assert_int_equal(inet_pton(AF_INET, address, &from.sin_addr), 1);
        assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof(from)), 0);
        inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
        assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
        return fd;
}

void stranger_say(int fd, const void *bytes, size_t size) {
        assert_int_equal(send(fd, bytes, size, MSG_NOSIGNAL), (ssize_t)size);
}

bool stranger_hear(int fd, void *bytes, size_t size) {
        for (size_t done = 0; done < size;) {
                struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
                ssize_t n;

                if (poll(&poll_fd, 1, 10000) != 1)
                        fail_msg("nothing is said");
                n = recv(fd, (uint8_t *)bytes + done, size - done, 0);
                if (n <= 0)
                        return false;
                done += (size_t)n;
        }
        return true;
}

void stranger_hear_end(int fd) {
        uint8_t byte;

        while (stranger_hear(fd, &byte, 1)) {
        }
        close(fd);
}

struct hello stranger_hello_of(const struct rig *rig) {
        struct hello hello = {.kind = HELLO_DIAL,
                              .class = FABRIC_NORMAL,
                              .from = rig->nodes[0].id,
                              .to = rig->nodes[1].id,
                              .from_epoch = rig->nodes[0].epoch,
                              .to_epoch = rig->nodes[1].epoch,
                              .number = 1000000,
                              .cluster = "test",
                              .rail = "blue"};

        return hello;
}

enum hello_status stranger_greet(int fd, const struct hello *hello, uint8_t token_byte) {
        uint8_t bytes[HELLO_BYTES], token[FABRIC_TOKEN];
        struct hello answer;

        memset(token, token_byte, sizeof(token));
        assert_int_equal(hello_pack(hello, token, bytes), 0);
        stranger_say(fd, bytes, sizeof(bytes));
        memset(bytes, 0xee, sizeof(bytes));
        assert_true(stranger_hear(fd, bytes, sizeof(bytes)));
        assert_int_equal(hello_unpack(bytes, &answer), 0);
        assert_int_equal(answer.kind, HELLO_ANSWER);
        return answer.status;
}

enum hello_status stranger_ask(struct rig *rig, const struct hello *hello, uint8_t token_byte, int *ret_fd) {
        int fd = stranger_dial(rig, 1);
        enum hello_status status = stranger_greet(fd, hello, token_byte);

        if (ret_fd)
                *ret_fd = fd;
        else
                stranger_hear_end(fd);
        return status;
}

int stranger_listen_for(uint32_t rail, uint16_t *ret_port) {
        struct sockaddr_in self = {.sin_family = AF_INET};
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        socklen_t size = sizeof(self);

        assert_true(fd >= 0);
        inet_pton(AF_INET, rig_place(RIG_LOOPBACK, 1, rail).address, &self.sin_addr);
        assert_int_equal(bind(fd, (struct sockaddr *)&self, sizeof(self)), 0);
        assert_int_equal(listen(fd, 8), 0);
        assert_int_equal(getsockname(fd, (struct sockaddr *)&self, &size), 0);
        *ret_port = ntohs(self.sin_port);
        return fd;
}

int stranger_hear_hello(int listen_fd, struct hello *ret_hello) {
        struct pollfd poll_fd = {.fd = listen_fd, .events = POLLIN};
        uint8_t bytes[HELLO_BYTES];
        int fd;

        if (poll(&poll_fd, 1, 10000) != 1)
                fail_msg("nobody dials");
        fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
        assert_true(fd >= 0);
        assert_true(stranger_hear(fd, bytes, sizeof(bytes)));
        assert_int_equal(hello_unpack(bytes, ret_hello), 0);
        assert_int_equal(ret_hello->kind, HELLO_DIAL);
        return fd;
}

void stranger_refuse(int fd, const struct hello *hello, enum hello_status status) {
        stranger_answer(fd, hello, status);
        stranger_hear_end(fd);
}

void stranger_answer(int fd, const struct hello *hello, enum hello_status status) {
        uint8_t bytes[HELLO_BYTES], token[FABRIC_TOKEN];
        struct hello answer = *hello;

        answer.kind = HELLO_ANSWER;
        answer.status = (uint8_t)status;
        answer.from = hello->to;
        answer.from_epoch = hello->to_epoch;
        answer.to = hello->from;
        answer.to_epoch = hello->from_epoch;
        memset(token, 1, sizeof(token)); /* of the pair 0, 1 */
        assert_int_equal(hello_pack(&answer, token, bytes), 0);
        stranger_say(fd, bytes, sizeof(bytes));
}
