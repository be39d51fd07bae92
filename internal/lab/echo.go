package lab

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/net/ipv4"
)

// echoPort is where nodes echo datagrams and keep connections (RFC 862).
const echoPort = 7

// echoCommand is what scenarios run on every node for the probes of a client: whatever comes by UDP goes back, from the address that
// it came to; whoever connects by TCP is told the node's name, and again for each line that he says.
func echoCommand() *cobra.Command {
	return &cobra.Command{
		Use: "serve-echo", Short: "Echo datagrams, and keep TCP connections", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			name, err := os.Hostname()
			if err != nil {
				return err
			}
			listener, err := net.Listen("tcp4", fmt.Sprintf(":%d", echoPort))
			if err != nil {
				return fmt.Errorf("serving echoes: %w", err)
			}
			defer listener.Close()
			socket, err := net.ListenPacket("udp4", fmt.Sprintf(":%d", echoPort))
			if err != nil {
				return fmt.Errorf("serving echoes: %w", err)
			}
			defer socket.Close()
			measureInTime()
			go keepConnections(listener, name)
			fmt.Fprintln(c.OutOrStdout(), `"ready"`)
			return echoDatagrams(socket)
		},
	}
}

// keepConnections ends with its listener.
func keepConnections(listener net.Listener, name string) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer connection.Close()
			_, err := fmt.Fprintln(connection, name)
			for lines := bufio.NewScanner(connection); err == nil && lines.Scan(); { // until the client goes, or the connection is destroyed
				_, err = fmt.Fprintln(connection, name)
			}
		}()
	}
}

// echoDatagrams ends with its socket.
func echoDatagrams(socket net.PacketConn) error {
	packets := ipv4.NewPacketConn(socket)
	if err := packets.SetControlMessage(ipv4.FlagDst, true); err != nil {
		return fmt.Errorf("serving echoes: %w", err)
	}
	buffer := make([]byte, 1500)
	for {
		n, about, from, err := packets.ReadFrom(buffer)
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil
		case err != nil || about == nil:
			continue
		}
		_, _ = packets.WriteTo(buffer[:n], &ipv4.ControlMessage{Src: about.Dst}, from) // an address that has just gone cannot answer
	}
}
