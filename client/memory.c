/* SPDX-License-Identifier: MIT */
/* rmx_mem_alloc and rmx_buffer_register. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <utlist.h>

#include "client/device.h"
#include "client/error.h"
#include "client/session.h"

int rmx_mem_alloc(struct rmx_session *session, size_t size, void **ret_ptr) {
        struct buffer buffer;
        int r;

        r = session_check(session, __func__);
        if (r)
                return r;
        if (!ret_ptr)
                return error_set(RMX_E_INVALID, "%s: ret_ptr is NULL", __func__);
        if (!size || size > PTRDIFF_MAX)
                return error_set(RMX_E_INVALID, "%s: size %zu is not in 1..%td", __func__, size, PTRDIFF_MAX);
        r = buffer_create(session, __func__, size, NULL, &buffer);
        if (r)
                return r;
        r = buffer_table_insert(&session->buffers, &buffer, size);
        if (r) {
                (void)buffer_destroy(session, __func__, NULL, &buffer);
                return error_set(RMX_E_NO_MEMORY, "%s: out of memory", __func__);
        }
        *ret_ptr = buffer.address;
        return RMX_OK;
}

int rmx_mem_free(struct rmx_session *session, void *ptr) {
        struct buffer buffer;
        int r;

        r = session_check(session, __func__);
        if (r)
                return r;
        if (!ptr || buffer_table_remove(&session->buffers, ptr, &buffer))
                return error_set(RMX_E_INVALID, "%s: %p is not what rmx_mem_alloc returned", __func__, ptr);
        r = buffer_destroy(session, __func__, NULL, &buffer);
        /* A daemon that is gone holds nothing any more. */
        return r == RMX_E_DAEMON_LOST ? RMX_OK : r;
}

int rmx_buffer_register(struct rmx_session *session, void *ptr, size_t size) {
        struct buffer_registration *registration, *other;
        uint64_t offset;
        uint32_t id;
        int r;

        r = session_check(session, __func__);
        if (r)
                return r;
        if (!ptr)
                return error_set(RMX_E_INVALID, "%s: ptr is NULL", __func__);
        if (!size || size > PTRDIFF_MAX)
                return error_set(RMX_E_INVALID, "%s: size %zu is not in 1..%td", __func__, size, PTRDIFF_MAX);
        registration = calloc(1, sizeof(*registration));
        if (!registration)
                return error_set(RMX_E_NO_MEMORY, "%s: out of memory", __func__);
        registration->address = ptr;
        registration->size = size;
        r = device_register(session, __func__, ptr, size, &registration->device, &registration->buffer);
        if (r) {
                free(registration);
                return r;
        }
        r = buffer_table_find(&session->buffers, ptr, size, &id, &offset);
        if (r == BUFFER_E_RANGE) {
                free(registration);
                return error_set(RMX_E_INVALID, "%s: %zu bytes at %p run over the end of memory from rmx_mem_alloc",
                                 __func__, size, ptr);
        }
        if (r == BUFFER_E_UNKNOWN && !registration->device) {
                registration->reserved = size;
                r = bounce_reserve(session, __func__, size);
                if (r) {
                        free(registration);
                        return r;
                }
        }
        pthread_mutex_lock(&session->buffers.mutex);
        DL_SEARCH_SCALAR(session->buffers.registrations, other, address, ptr);
        if (!other)
                DL_APPEND(session->buffers.registrations, registration);
        pthread_mutex_unlock(&session->buffers.mutex);
        if (other) {
                if (registration->reserved)
                        bounce_unreserve(&session->bounce, registration->reserved);
                free(registration);
                return error_set(RMX_E_INVALID, "%s: %p is registered already", __func__, ptr);
        }
        return RMX_OK;
}

int rmx_buffer_unregister(struct rmx_session *session, void *ptr) {
        struct buffer_registration *registration, *other;
        bool shared = false; /* another one is of the same allocation, and still needs it */
        int r;

        r = session_check(session, __func__);
        if (r)
                return r;
        pthread_mutex_lock(&session->buffers.mutex);
        DL_SEARCH_SCALAR(session->buffers.registrations, registration, address, ptr);
        if (registration)
                DL_DELETE(session->buffers.registrations, registration);
        DL_FOREACH(session->buffers.registrations, other)
        shared = shared || (registration && other->device && other->device == registration->device &&
                            other->buffer == registration->buffer);
        pthread_mutex_unlock(&session->buffers.mutex);
        if (!registration)
                return error_set(RMX_E_INVALID, "%s: %p is not registered", __func__, ptr);
        if (registration->reserved)
                bounce_unreserve(&session->bounce, registration->reserved);
        if (registration->device && !shared)
                r = device_memory_forget(registration->device, __func__, ptr, registration->buffer);
        free(registration);
        return r;
}
