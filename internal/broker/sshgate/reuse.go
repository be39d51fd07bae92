package sshgate

import (
	"net"
	"net/netip"

	"golang.org/x/crypto/ssh"
)

// Algorithms are what this gateway agrees to, for other SSH servers of Holdfast.
func Algorithms() ssh.Config { return algorithms() }

// Place is where limits for one address are counted, for them as well.
func Place(address net.Addr) netip.Addr { return place(address) }
