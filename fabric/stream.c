/* SPDX-License-Identifier: MIT */
/*
 * The bytes of a connection's socket, with TLS or without. Large data are given to SSL_write() where they are, and
 * small pieces are gathered into one record first.
 */
#include <errno.h>
#include <openssl/err.h>
#include <sys/epoll.h>

#include "fabric/private.h"
#include "fabric/stream.h"

#define TLS_DIRECT 8192u /* data of this size or more are not copied */
#define TLS_RECORD 16384u

ssize_t conn_read(struct fabric_conn *conn, const struct iovec *to, int n_to) {
        struct fabric *fabric = conn->rail->fabric;
        int saved = 0, error = SSL_ERROR_NONE;
        ssize_t n;

        pthread_mutex_unlock(&fabric->lock);
        if (conn->ssl) {
                ERR_clear_error();
                errno = 0;
                n = SSL_read(conn->ssl, to[0].iov_base, (int)(to[0].iov_len < INT32_MAX ? to[0].iov_len : INT32_MAX));
                if (n <= 0)
                        error = SSL_get_error(conn->ssl, (int)n);
        } else {
                do
                        n = readv(conn->fd, to, n_to);
                while (n < 0 && errno == EINTR);
                if (n <= 0)
                        error = n == 0                                    ? SSL_ERROR_ZERO_RETURN
                                : errno == EAGAIN || errno == EWOULDBLOCK ? SSL_ERROR_WANT_READ
                                                                          : SSL_ERROR_SYSCALL;
        }
        saved = errno;
        fabric_lock(fabric);
        switch (error) {
        case SSL_ERROR_NONE:
                conn->rail->bytes_received += (uint64_t)n;
                return n;
        case SSL_ERROR_WANT_READ:
                return 0;
        case SSL_ERROR_WANT_WRITE:
                conn_watch(conn, EPOLLIN | EPOLLOUT);
                return 0;
        case SSL_ERROR_ZERO_RETURN:
                conn_doom(conn, true, "closed by the other end");
                return -1;
        default:
                conn_doom(conn, true, "receive: %s", error == SSL_ERROR_SYSCALL && saved ? strerror(saved) : "TLS");
                return -1;
        }
}

static void send_plain(struct fabric_conn *conn, const struct iovec *pieces, int n_pieces, struct stream_sent *sent) {
        struct iovec all[STREAM_PIECES + 1];
        struct msghdr message = {.msg_iov = all};
        uint32_t out = conn->out_end - conn->out_start;
        ssize_t n;

        if (out)
                all[message.msg_iovlen++] = (struct iovec){.iov_base = conn->out + conn->out_start, .iov_len = out};
        if (n_pieces > 0)
                memcpy(all + message.msg_iovlen, pieces, (size_t)n_pieces * sizeof(*pieces));
        message.msg_iovlen += (size_t)n_pieces;
        do
                n = sendmsg(conn->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        while (n < 0 && errno == EINTR);
        if (n < 0) {
                sent->blocked = errno == EAGAIN || errno == EWOULDBLOCK;
                sent->error = sent->blocked ? 0 : errno;
                return;
        }
        sent->wire = (uint64_t)n;
        if ((uint64_t)n < out) {
                conn->out_start += (uint32_t)n;
                return;
        }
        conn->out_start = conn->out_end = 0;
        sent->consumed = (uint64_t)n - out;
}

static size_t send_record(struct fabric_conn *conn, const void *bytes, size_t size, struct stream_sent *sent) {
        int n, error;

        ERR_clear_error();
        n = SSL_write(conn->ssl, bytes, (int)size);
        if (n > 0) {
                sent->wire += (uint64_t)n;
                return (size_t)n;
        }
        error = SSL_get_error(conn->ssl, n);
        if (error == SSL_ERROR_WANT_WRITE || error == SSL_ERROR_WANT_READ)
                sent->blocked = true;
        else
                sent->error = error == SSL_ERROR_SYSCALL && errno ? errno : EPROTO;
        return 0;
}

/*
 * A record that could not be written must be offered again as it was: what stands in `out` stays there, and data that
 * were offered where they are come again, since nothing before them was taken out (zeros are as long).
 */
static void send_tls(struct fabric_conn *conn, const struct iovec *pieces, int n_pieces, struct stream_sent *sent) {
        uint32_t room = CONN_OUT;

        if (conn->out_start == conn->out_end) {
                conn->out_start = conn->out_end = 0;
                if (n_pieces == 0)
                        return;
                if (pieces[0].iov_len >= TLS_DIRECT || conn->direct) {
                        size_t size = pieces[0].iov_len < TLS_RECORD ? pieces[0].iov_len : TLS_RECORD;

                        sent->consumed = send_record(conn, pieces[0].iov_base, size, sent);
                        conn->direct = sent->blocked;
                        return;
                }
                for (int i = 0; i < n_pieces && conn->out_end < room && pieces[i].iov_len < TLS_DIRECT; i++) {
                        size_t size =
                                pieces[i].iov_len < room - conn->out_end ? pieces[i].iov_len : room - conn->out_end;

                        memcpy(conn->out + conn->out_end, pieces[i].iov_base, size);
                        conn->out_end += (uint32_t)size;
                        sent->consumed += size;
                }
        }
        conn->out_start +=
                (uint32_t)send_record(conn, conn->out + conn->out_start, conn->out_end - conn->out_start, sent);
}

void stream_write(struct fabric_conn *conn, const struct iovec *pieces, int n_pieces, struct stream_sent *sent) {
        if (conn->ssl)
                send_tls(conn, pieces, n_pieces, sent);
        else
                send_plain(conn, pieces, n_pieces, sent);
}

void stream_written(struct fabric_conn *conn, const struct stream_sent *sent) {
        conn->rail->bytes_sent += sent->wire;
        if (sent->error) {
                conn_doom(conn, true, "send: %s", strerror(sent->error));
        } else if (sent->blocked) {
                conn->ready_out = false;
                conn_watch(conn, EPOLLIN | EPOLLOUT);
        }
}

void stream_flush(struct fabric_conn *conn) {
        struct fabric *fabric = conn->rail->fabric;

        while (conn->ready_out && !conn->doomed && conn->out_start < conn->out_end) {
                struct stream_sent sent = {0};

                pthread_mutex_unlock(&fabric->lock);
                stream_write(conn, NULL, 0, &sent);
                fabric_lock(fabric);
                stream_written(conn, &sent);
        }
}
