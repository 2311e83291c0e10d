/* SPDX-License-Identifier: MIT */
/*
 * rmx_mem_alloc and rmx_buffer_register.
 *
 * Several registrations may lie in one allocation of a GPU, which the daemon knows as one buffer: the last one that
 * ends takes it back. Whoever has found the buffer must therefore be in the list before anybody looks whether there is
 * another one; so on each GPU all of a registration, and all of its end, is done under a mutex of that GPU. The daemon
 * is waited for under it, as long as it takes: an end waits until no executor uses the memory. So nothing else may need
 * it, neither host memory nor what is on other GPUs.
 */
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

/* It is in the list afterwards, or gone. */
static int registration_add(struct rmx_session *session, const char *what, struct buffer_registration *registration) {
        struct buffer_registration *other;

        pthread_mutex_lock(&session->buffers.mutex);
        DL_SEARCH_SCALAR(session->buffers.registrations, other, address, registration->address);
        if (!other)
                DL_APPEND(session->buffers.registrations, registration);
        pthread_mutex_unlock(&session->buffers.mutex);
        if (!other)
                return RMX_OK;
        error_set(RMX_E_INVALID, "%s: %p is registered already", what, registration->address);
        bounce_unreserve(&session->bounce, registration->reservation);
        free(registration);
        return RMX_E_INVALID;
}

static int register_device(struct rmx_session *session, const char *what, struct buffer_registration *registration,
                           struct device *device, const struct client_gpu_memory *memory) {
        uint64_t offset;
        int r;

        registration->device = device;
        pthread_mutex_lock(&device->registering);
        r = device_memory_name(device, what, NULL, memory, registration->address, registration->size,
                               &registration->buffer, &offset);
        if (r)
                free(registration);
        else
                r = registration_add(session, what, registration);
        pthread_mutex_unlock(&device->registering);
        return r;
}

static int register_host(struct rmx_session *session, const char *what, struct buffer_registration *registration) {
        const size_t size = registration->size;
        uint64_t offset;
        uint32_t id;
        int r;

        r = buffer_table_find(&session->buffers, registration->address, size, &id, &offset);
        if (r == BUFFER_E_RANGE) {
                r = error_set(RMX_E_INVALID, "%s: %zu bytes at %p run over the end of memory from rmx_mem_alloc", what,
                              size, registration->address);
        } else if (r == BUFFER_E_UNKNOWN) {
                r = bounce_reserve(session, what, registration->address, size, &registration->reservation);
        }
        if (!r)
                return registration_add(session, what, registration);
        free(registration);
        return r;
}

int rmx_buffer_register(struct rmx_session *session, void *ptr, size_t size) {
        struct buffer_registration *registration;
        struct client_gpu_memory memory;
        struct device *device;
        int r;

        r = session_check(session, __func__);
        if (r)
                return r;
        if (!ptr)
                return error_set(RMX_E_INVALID, "%s: ptr is NULL", __func__);
        if (!size || size > PTRDIFF_MAX)
                return error_set(RMX_E_INVALID, "%s: size %zu is not in 1..%td", __func__, size, PTRDIFF_MAX);
        r = device_locate(session, __func__, ptr, size, &device, &memory);
        if (r)
                return r;
        registration = calloc(1, sizeof(*registration));
        if (!registration)
                return error_set(RMX_E_NO_MEMORY, "%s: out of memory", __func__);
        registration->address = ptr;
        registration->size = size;
        return device ? register_device(session, __func__, registration, device, &memory)
                      : register_host(session, __func__, registration);
}

/* Whose memory was registered there; NULL: the host's, or nothing is. */
static struct device *registration_device(struct rmx_session *session, const void *address) {
        struct buffer_registration *registration;
        struct device *device;

        pthread_mutex_lock(&session->buffers.mutex);
        DL_SEARCH_SCALAR(session->buffers.registrations, registration, address, address);
        device = registration ? registration->device : NULL;
        pthread_mutex_unlock(&session->buffers.mutex);
        return device;
}

/* Takes it out of the list; NULL: it is not there, or not memory of this device (NULL: of the host). *ret_shared: there
 * is another one of the same allocation, which still needs it. */
static struct buffer_registration *registration_remove(struct rmx_session *session, const void *address,
                                                       const struct device *device, bool *ret_shared) {
        struct buffer_registration *registration, *other;

        *ret_shared = false;
        pthread_mutex_lock(&session->buffers.mutex);
        DL_SEARCH_SCALAR(session->buffers.registrations, registration, address, address);
        if (registration && registration->device != device)
                registration = NULL;
        if (registration)
                DL_DELETE(session->buffers.registrations, registration);
        DL_FOREACH(session->buffers.registrations, other) {
                if (registration && device && other->device == device && other->buffer == registration->buffer)
                        *ret_shared = true;
        }
        pthread_mutex_unlock(&session->buffers.mutex);
        return registration;
}

int rmx_buffer_unregister(struct rmx_session *session, void *ptr) {
        struct buffer_registration *registration;
        struct device *device;
        bool shared;
        int r;

        r = session_check(session, __func__);
        if (r)
                return r;
        device = registration_device(session, ptr);
        if (device)
                pthread_mutex_lock(&device->registering);
        registration = registration_remove(session, ptr, device, &shared);
        if (registration && device && !shared)
                r = device_memory_forget(device, __func__, ptr, registration->buffer);
        if (device)
                pthread_mutex_unlock(&device->registering);
        if (!registration)
                return error_set(RMX_E_INVALID, "%s: %p is not registered", __func__, ptr);
        bounce_unreserve(&session->bounce, registration->reservation);
        free(registration);
        return r;
}
