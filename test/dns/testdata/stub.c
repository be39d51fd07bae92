/*
 * A client of the C library's resolver: asks for the addresses of a name so many times, one question after the other in
 * threads of their own, and writes for each what came of it.
 *
 *	stub NAME any|ipv4|ipv6 COUNT PAUSE-IN-MILLISECONDS
 */
#include <arpa/inet.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

static const char *name;
static struct addrinfo hints;
static pthread_mutex_t output = PTHREAD_MUTEX_INITIALIZER;

static long milliseconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void *ask(void *unused)
{
	struct addrinfo *found = NULL, *one;
	char text[INET6_ADDRSTRLEN];
	long began = milliseconds();
	int code = getaddrinfo(name, NULL, &hints, &found);
	(void)unused;
	pthread_mutex_lock(&output);
	printf("%ld %d", milliseconds() - began, code);
	if (code != 0)
		printf(" %s", gai_strerror(code));
	for (one = code == 0 ? found : NULL; one; one = one->ai_next) {
		void *address = one->ai_family == AF_INET ? (void *)&((struct sockaddr_in *)one->ai_addr)->sin_addr
		                                          : (void *)&((struct sockaddr_in6 *)one->ai_addr)->sin6_addr;
		printf(" %s", inet_ntop(one->ai_family, address, text, sizeof text));
	}
	printf("\n");
	fflush(stdout);
	pthread_mutex_unlock(&output);
	if (code == 0)
		freeaddrinfo(found);
	return NULL;
}

int main(int count, char **words)
{
	long i, clients, pause_for;
	pthread_t *threads;
	pthread_attr_t small;
	if (count != 5)
		return 2;
	name = words[1];
	hints.ai_socktype = SOCK_STREAM;
	hints.ai_family = strcmp(words[2], "ipv4") == 0 ? AF_INET : strcmp(words[2], "ipv6") == 0 ? AF_INET6 : AF_UNSPEC;
	clients = atol(words[3]);
	pause_for = atol(words[4]);
	threads = calloc((size_t)clients, sizeof *threads);
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 256 * 1024);
	for (i = 0; i < clients; i++) {
		struct timespec pause = {0, pause_for * 1000000};
		if (pthread_create(&threads[i], &small, ask, NULL) != 0)
			return 3;
		if (pause_for == 0)
			pthread_join(threads[i], NULL);
		else
			nanosleep(&pause, NULL);
	}
	for (i = 0; pause_for != 0 && i < clients; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
